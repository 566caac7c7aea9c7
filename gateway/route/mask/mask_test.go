package mask_test

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/gateway/route/mask"
)

// expected is what the standard library makes of text.
func expected(text string, secrets ...string) string {
	slices.SortStableFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, s := range secrets {
		if s != "" {
			pairs = append(pairs, s, strings.Repeat("*", len(s)))
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func set(secrets ...string) *mask.Set {
	var texts [][]byte
	for _, s := range secrets {
		texts = append(texts, []byte(s))
	}
	return mask.New(texts...)
}

// pieces reads text in pieces of n bytes.
type pieces struct {
	text string
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.n, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func TestMask(t *testing.T) {
	const secret = "sk-live-0123456789"
	for _, text := range []string{
		"", "nothing", secret, "a" + secret + "b", secret + secret, "sk-live-" + secret, secret[:10] + secret, secret[:len(secret)-1],
		strings.Repeat("x", 40000) + secret + strings.Repeat("y", 40000),
	} {
		want := strings.ReplaceAll(text, secret, strings.Repeat("*", len(secret)))
		if got := set(secret).String(text); got != want {
			t.Errorf("%.60q: %.60q", text, got)
		}
		b := []byte(text)
		if set(secret).Bytes(b); string(b) != want {
			t.Errorf("%.60q in place: %.60q", text, b)
		}
		for _, n := range []int{1, 2, 7, len(secret), 1000} {
			got, err := io.ReadAll(set(secret).NewReader(&pieces{text, n}, 0))
			if err != nil || string(got) != want {
				t.Errorf("%.60q in pieces of %d: %.60q, %v", text, n, got, err)
			}
		}
	}
	if got := (*mask.Set)(nil).String(secret); got != secret {
		t.Errorf("no set: %q", got)
	}
}

// A text that reaches a dialogue byte by byte shows its first bytes and no more.
func TestMaskDribbled(t *testing.T) {
	const secret = "sk-live-0123456789"
	got, err := io.ReadAll(set(secret).NewReader(&pieces{"a" + secret + "b" + secret, 1}, 8))
	want := "a" + secret[:7] + strings.Repeat("*", len(secret)-7) + "b" + secret[:7] + strings.Repeat("*", len(secret)-7)
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// In a dialogue each message gets out before the next one comes, also one that ends in a
// secret, or as one begins.
func TestMaskDialogue(t *testing.T) {
	const secret = "abcdefghijka"
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	r := set(secret).NewReader(near, 8)
	for _, m := range []struct{ say, hear string }{
		{"hello a", "hello a"}, {"x" + secret, "x************"}, {"it is abcdefg", "it is abcdefg"}, {secret + secret, strings.Repeat("*", 24)},
	} {
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		go func() { _, _ = far.Write([]byte(m.say)) }()
		got := make([]byte, len(m.say))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != m.hear {
			t.Fatalf("%q: %q, %v", m.say, got, err)
		}
	}
}

// An event gets out when it is whole, although the secret's first letter is in it.
func TestMaskEvent(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	_ = near.SetDeadline(time.Now().Add(10 * time.Second))
	const event = "data: sk-liv\n\n"
	go func() { _, _ = far.Write([]byte(event)) }()
	got := make([]byte, len(event))
	if _, err := io.ReadFull(set("sk-live-0123456789").NewReader(near, 0), got); err != nil || string(got) != event {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestMaskKeepsErrors(t *testing.T) {
	broken := iotest.ErrReader(io.ErrUnexpectedEOF)
	got, err := io.ReadAll(set("secret-text").NewReader(io.MultiReader(strings.NewReader("a secret-te"), broken), 0))
	if err != io.ErrUnexpectedEOF || string(got) != "a secret-te" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzMask(f *testing.F) {
	f.Add("abcabcabd", "abcabd", "bc", uint8(1))
	f.Add("aaaaaaa", "aaa", "aa", uint8(2))
	f.Add("xxabxabcxabcd", "abcd", "xab", uint8(3))
	f.Fuzz(func(t *testing.T, text, one, two string, n uint8) {
		want := expected(text, one, two)
		if one == "" && two == "" {
			want = text
		}
		if got := set(one, two).String(text); got != want {
			t.Fatalf("%q without %q and %q is %q, not %q", text, one, two, got, want)
		}
		got, err := io.ReadAll(set(one, two).NewReader(&pieces{text, int(n)%7 + 1}, 0))
		if err != nil || string(got) != want {
			t.Fatalf("%q without %q and %q, in pieces of %d, is %q, not %q", text, one, two, n%7+1, got, want)
		}
		if one == "" {
			return
		}
		if got := set(one).String(text); got != strings.ReplaceAll(text, one, strings.Repeat("*", len(one))) {
			t.Fatalf("%q without %q is %q", text, one, got)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	text := bytes.Repeat([]byte("a line of an ordinary answer, as models give them\n"), 20000)
	s := set("sk-live-0123456789abcdef", "c2stbGl2ZS0wMTIzNDU2Nzg5YWJjZGVm", "736b2d6c6976652d30313233343536373839616263646566")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := io.Copy(io.Discard, s.NewReader(bytes.NewReader(text), 0)); err != nil {
			b.Fatal(err)
		}
	}
}
