package proxy

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// echKey makes a key of a server whose hellos show the name public, and its published
// configuration (RFC 9849, 4).
func echKey(t testing.TB, public string) (tls.EncryptedClientHelloKey, []byte) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var b cryptobyte.Builder
	b.AddUint16(extensionECH)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint8(1)       // id
		b.AddUint16(0x0020) // X25519 with HKDF-SHA256
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(key.PublicKey().Bytes()) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(1); b.AddUint16(1) }) // HKDF-SHA256, AES-128-GCM
		b.AddUint8(32)                                                                            // longest name
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(public)) })
		b.AddUint16(0) // extensions
	})
	config := b.BytesOrPanic()
	var list cryptobyte.Builder
	list.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(config) })
	return tls.EncryptedClientHelloKey{Config: config, PrivateKey: key.Bytes()}, list.BytesOrPanic()
}

var errNamed = errors.New("the server knows the name")

// TestECH has a real client hide b.test behind a.test.
func TestECH(t *testing.T) {
	key, published := echKey(t, "a.test")
	named := make(chan string, 1)
	server := func(c *net.TCPConn) {
		_ = tls.Server(c, &tls.Config{
			EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{key},
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				named <- h.ServerName
				return nil, errNamed
			},
		}).Handshake()
	}
	for name, tc := range map[string]struct {
		spec policy.Spec
		rule string // that refuses; empty where it passes
	}{
		"a rule for the name": {allow("a.test"), "allow a.test:80+443"},
		"a denied name":       {policy.Spec{Mode: policy.Open, Deny: []string{"b.test"}}, "deny b.test"},
		"nothing by name":     {policy.Spec{Mode: policy.Open}, ""},
		"allowed by word":     {policy.Spec{Mode: policy.Allow, Allow: []string{"a.test"}, AllowECH: true}, ""},
	} {
		b := start(t, tc.spec, server, nil)
		c := tls.Client(b.dial("a.test", 443), &tls.Config{ServerName: "b.test", EncryptedClientHelloConfigList: published, MinVersion: tls.VersionTLS13})
		err := c.Handshake()
		_ = c.Close()
		a := b.record()
		if tc.rule == "" {
			if got := <-named; got != "b.test" || a.Verdict != attempt.Allowed { // which is why it is refused elsewhere
				t.Errorf("%s: the server was asked for %s: %+v", name, got, a)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%s: %v", name, err)
		}
		if a.Verdict != attempt.Refused || a.Code != sbxerr.EgressECH || a.Rule != tc.rule || !strings.Contains(a.Reason, "encrypted_client_hello") || a.Address.IsValid() {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if len(named) != 0 {
		t.Errorf("a refused hello reached the server, for %s", <-named)
	}
}

// A denial that comes later ends what hides its name.
func TestECHAfterAChange(t *testing.T) {
	_, published := echKey(t, "a.test")
	said := hello(t, "b.test", func(c *tls.Config) {
		c.EncryptedClientHelloConfigList, c.MinVersion = published, tls.VersionTLS13
	})
	b := start(t, policy.Spec{Mode: policy.Open}, echo, nil)
	hidden, plain := b.dial("a.test", 443), b.dial("a.test", 443)
	for c, said := range map[*net.TCPConn][]byte{hidden: said, plain: hello(t, "a.test", nil)} {
		if _, err := c.Write(said); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len(said))); err != nil {
			t.Fatal(err)
		}
	}
	b.SetPolicy(compile(t, policy.Spec{Mode: policy.Open, Deny: []string{"b.test"}}))
	if _, err := hidden.Read(make([]byte, 1)); err == nil {
		t.Error("a hidden name outlived a denial")
	}
	if a := b.record(); a.Verdict != attempt.Cut || a.Code != sbxerr.EgressECH || a.Rule != "deny b.test" {
		t.Errorf("%+v", a)
	}
	if got, err := talk(plain, "x"); got != "x" || err != nil {
		t.Errorf("what hides nothing was cut: %q, %v", got, err)
	}
}

// What only looks like the extension passes, and the extension is found in any form.
func TestHidesName(t *testing.T) {
	plain := hello(t, "a.test", nil)
	grease := withExtension(plain, extensionECH, "\x00\x00\x01\x00\x01\x2a\x00\x00\x00\x00")
	for name, tc := range map[string]struct {
		said []byte
		want bool
	}{
		"plain":             {plain, false},
		"another extension": {withExtension(plain, 0x0a0a, "\xfe\x0d\x00\x00"), false},
		"GREASE":            {grease, true},
		"empty":             {withExtension(plain, extensionECH, ""), true},
		"in small records":  {split(grease, 7), true},
	} {
		if got, err := hidesName(tc.said); got != tc.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := hidesName(plain[:len(plain)-1]); err == nil {
		t.Error("half a hello")
	}
}

// withExtension appends an extension to the hello, which is one record.
func withExtension(hello []byte, kind uint16, body string) []byte {
	added := append([]byte{byte(kind >> 8), byte(kind), 0, byte(len(body))}, body...)
	out := append(append([]byte{}, hello...), added...)
	extensions := 5 + 4 + 2 + 32
	extensions += 1 + int(out[extensions])
	extensions += 2 + int(out[extensions])<<8 + int(out[extensions+1])
	extensions += 1 + int(out[extensions])
	for _, length := range []int{3, 7, extensions} { // of the record, the message and the extensions
		n := int(out[length])<<8 + int(out[length+1]) + len(added)
		out[length], out[length+1] = byte(n>>8), byte(n)
	}
	return out
}
