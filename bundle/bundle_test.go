package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var contents = []string{"an image", strings.Repeat("profiles ", 100)}

// made returns a bundle, signed unless key is nil.
func made(t *testing.T, key ed25519.PrivateKey) []byte {
	t.Helper()
	var parts []Part
	for i, p := range []Part{{Kind: Image, Name: "tools:1", Digest: "sha256:x"}, {Kind: File, Name: "profiles.yaml"}} {
		p, err := Describe(p, strings.NewReader(contents[i]))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	var out bytes.Buffer
	open := func(i int) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(contents[i])), nil }
	if err := Write(&out, parts, key, open); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func keys(t *testing.T) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	private, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	priv, err := PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := PublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return priv, pub
}

func read(data []byte, key ed25519.PublicKey) (*Bundle, error) {
	return Read(bytes.NewReader(data), int64(len(data)), key)
}

func TestRead(t *testing.T) {
	priv, pub := keys(t)
	_, other := keys(t)
	b, err := read(made(t, priv), pub)
	if err != nil || !b.Signed {
		t.Fatal(err)
	}
	for i, want := range contents {
		if got, err := io.ReadAll(b.Open(i)); err != nil || string(got) != want {
			t.Errorf("part %d: %q, %v", i, got, err)
		}
	}
	if _, err := read(made(t, priv), other); !errors.Is(err, sbxerr.Bundle) {
		t.Errorf("another key: %v", err)
	}
	if _, err := read(made(t, nil), pub); !errors.Is(err, sbxerr.Bundle) {
		t.Errorf("unsigned, with a key: %v", err)
	}
	if b, err := read(made(t, nil), nil); err != nil || b.Signed {
		t.Errorf("unsigned: %v", err)
	}
}

// TestEveryBit: a bundle with one bit changed, cut or longer is refused.
func TestEveryBit(t *testing.T) {
	priv, pub := keys(t)
	for name, tt := range map[string]struct {
		data []byte
		key  ed25519.PublicKey
	}{"signed": {made(t, priv), pub}, "unsigned": {made(t, nil), nil}} {
		for i := range tt.data {
			for bit := range 8 {
				tt.data[i] ^= 1 << bit
				if _, err := read(tt.data, tt.key); err == nil && (tt.key != nil || !inManifest(tt.data, i)) {
					t.Errorf("%s: bit %d of byte %d: accepted", name, bit, i)
				}
				tt.data[i] ^= 1 << bit
			}
			if i%7 == 0 {
				if _, err := read(tt.data[:i], tt.key); !errors.Is(err, sbxerr.Bundle) {
					t.Errorf("%s: cut to %d bytes: %v", name, i, err)
				}
			}
		}
		if _, err := read(append(bytes.Clone(tt.data), make([]byte, 512)...), tt.key); !errors.Is(err, sbxerr.Bundle) {
			t.Errorf("%s: longer: %v", name, err)
		}
	}
}

// inManifest reports whether byte i is of the manifest. Without a signature, nothing
// protects the names and times there.
func inManifest(data []byte, i int) bool {
	const begin = 512 // after its header
	d := json.NewDecoder(bytes.NewReader(data[begin:]))
	var m any
	return d.Decode(&m) == nil && i >= begin && i < begin+int(d.InputOffset())
}

func TestRefusedParts(t *testing.T) {
	for name, parts := range map[string][]Part{
		"none":         {},
		"a path":       {{Kind: File, Name: "../x"}},
		"hidden":       {{Kind: File, Name: ".x"}},
		"another kind": {{Kind: "key", Name: "x"}},
		"twice":        {{Kind: Image, Name: "x"}, {Kind: Image, Name: "x"}},
	} {
		if err := Write(io.Discard, parts, nil, nil); !errors.Is(err, sbxerr.Bundle) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadKeys(t *testing.T) {
	private, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PrivateKey(public); !errors.Is(err, sbxerr.Config) {
		t.Errorf("a public key as a private one: %v", err)
	}
	if _, err := PublicKey(private); !errors.Is(err, sbxerr.Config) {
		t.Errorf("a private key as a public one: %v", err)
	}
	if _, err := PublicKey([]byte("x")); !errors.Is(err, sbxerr.Config) {
		t.Errorf("no key: %v", err)
	}
}
