package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/secret"
)

const value = `sk-live-"7<0>&1\2/3+4 5@6=7`

func newStore(t *testing.T) *secret.Store {
	t.Helper()
	s, err := secret.NewStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func set(t *testing.T, s *secret.Store, name, value string) {
	t.Helper()
	if err := s.Set(one(name, strings.NewReader(value))); err != nil {
		t.Fatal(err)
	}
}

func one(name string, r io.Reader) map[string]io.Reader { return map[string]io.Reader{name: r} }

func use(t *testing.T, s *secret.Store, name string) secret.Value {
	t.Helper()
	v, ok := s.Use(name)
	if !ok {
		t.Fatalf("no secret %q", name)
	}
	t.Cleanup(v.Release)
	return v
}

func TestTexts(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", value+"\r\n")
	v := use(t, s, "key")
	for _, tt := range []struct {
		what string
		text func() (string, error)
		want string
	}{
		{"bearer", func() (string, error) { return v.Text("Bearer ") }, "Bearer " + value},
		{"plain", func() (string, error) { return v.Text("") }, value},
		{"basic", func() (string, error) { return v.Basic("user") }, "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+value))},
		{"query", v.Query, strings.ReplaceAll(url.QueryEscape(value), "+", "%20")},
	} {
		for range 2 { // the second time it is the same text
			if got, err := tt.text(); err != nil || got != tt.want {
				t.Errorf("%s: %q, %v", tt.what, got, err)
			}
		}
	}
}

// Whatever an upstream makes of a value with the usual encoders is masked.
func TestForms(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", value)
	mask := use(t, s, "key").Mask()
	inJSON, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plainJSON bytes.Buffer
	e := json.NewEncoder(&plainJSON)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"plain": value, "query": url.QueryEscape(value), "path": url.PathEscape(value), "JSON": strings.Trim(string(inJSON), `"`),
		"JSON without HTML": strings.Trim(strings.TrimSpace(plainJSON.String()), `"`),
		"hex":               hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
	} {
		if got, want := mask.String("<"+text+">"), "<"+strings.Repeat("*", len(text))+">"; got != want {
			t.Errorf("%s: %q is %q", what, text, got)
		}
	}
	for before := range 7 {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString([]byte(strings.Repeat("u", before) + value + "after"))
			got := mask.String(text)
			if stars := strings.Count(got, "*"); len(got) != len(text) || stars < len(value)*4/3-3 {
				t.Errorf("%d bytes before: %q is %q", before, text, got)
			}
		}
	}
	for _, text := range []string{"an ordinary answer", value[1:], value[:len(value)-1], "sk-live-"} {
		if got := mask.String(text); got != text {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestNeverShown(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", value)
	v := use(t, s, "key")
	if _, err := v.Text("Bearer "); err != nil {
		t.Fatal(err)
	}
	type holder struct{ inner, Outer any }
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("said", "value", v, "pointer", &v, "inside", holder{v, v})
	shown := []string{logged.String(), v.String(), sbxerr.New(sbxerr.Secret, "test", "%v", v).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
		for _, what := range []any{v, &v, holder{v, v}, &holder{&v, &v}, []any{v}, map[string]any{"k": v}, s} {
			shown = append(shown, fmt.Sprintf(verb, what))
		}
	}
	for _, text := range shown {
		for _, form := range []string{value, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))), fmt.Sprint([]byte(value)), value[:12]} {
			if strings.Contains(text, form) {
				t.Errorf("%q is shown in %.200q", form, text)
			}
		}
	}
	if text, err := json.Marshal(v); err == nil {
		t.Errorf("JSON: %s", text)
	}
	if text, err := json.Marshal(map[string]any{"k": holder{v, &v}}); err == nil {
		t.Errorf("JSON: %s", text)
	}
	if err := gob.NewEncoder(&bytes.Buffer{}).Encode(v); err == nil {
		t.Error("gob encodes it")
	}
	if reflect.TypeOf(v).Comparable() {
		t.Error("it can be compared")
	}
}

func TestRefuses(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", value)
	for _, tt := range []struct{ name, value, want string }{
		{"", value, "is no name"}, {"a b", value, "is no name"}, {strings.Repeat("n", 65), value, "is no name"},
		{"key", "", "is empty"}, {"key", "\n", "is empty"}, {"key", "shorter", "fewer than 8"}, {"key", strings.Repeat("x", secret.Most+1), "longer than 8192"},
		{"key", "one-line\nand another", "line end"}, {"key", "secret-value\n\n", "line end"}, {"key", "secret-v\x00alue", "control"}, {"key", "schlüssel-eins", "ASCII"},
		{"key", " secret-value", "a space"}, {"key", "secret-value ", "a space"},
	} {
		err := s.Set(map[string]io.Reader{"other": strings.NewReader(value), tt.name: strings.NewReader(tt.value)})
		if _, ok := s.Use("other"); ok {
			t.Errorf("%q: one of two is there", tt.name)
		}
		if sbxerr.Of(err) != sbxerr.Secret || !strings.Contains(err.Error(), tt.want) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%q, %.20q: %v", tt.name, tt.value, err)
			continue
		}
		if len(strings.TrimSpace(tt.value)) > 6 && strings.Contains(err.Error(), strings.TrimSpace(tt.value)[:7]) {
			t.Errorf("it shows the value: %v", err)
		}
	}
	if err := s.Set(one("key", iotest.ErrReader(errors.New("no such device")))); sbxerr.Of(err) != sbxerr.Secret || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("a source that fails: %v", err)
	}
	if got, err := use(t, s, "key").Text(""); err != nil || got != value {
		t.Errorf("afterwards it is %q, %v", got, err)
	}
	set(t, s, "most", strings.Repeat("x", secret.Most))
	if _, ok := s.Use("key"); ok {
		t.Error("a secret is there that was not named again")
	}
	if err := s.Set(one("key", strings.NewReader(value)), "most", "absent"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"key": true, "most": true, "absent": false} {
		if _, ok := s.Use(name); ok != want {
			t.Errorf("%s is there: %v", name, ok)
		}
	}
}

// What is tried is not kept.
func TestTry(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", value)
	if err := s.Try("key", strings.NewReader("another-value")); err != nil {
		t.Error(err)
	}
	if err := s.Try("other", strings.NewReader("two\nlines of it")); sbxerr.Of(err) != sbxerr.Secret || strings.Contains(err.Error(), "lines of it") {
		t.Errorf("no value: %v", err)
	}
	if got, err := use(t, s, "key").Text(""); err != nil || got != value {
		t.Errorf("afterwards it is %q, %v", got, err)
	}
	if _, ok := s.Use("other"); ok {
		t.Error("one that was tried is kept")
	}
}

func TestRotation(t *testing.T) {
	s := newStore(t)
	set(t, s, "key", "the-first-value")
	first := use(t, s, "key")
	text, err := first.Text("Bearer ")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Current(first) {
		t.Error("it is not current")
	}
	set(t, s, "key", "the-second-value")
	if s.Current(first) || text != "Bearer the-first-value" {
		t.Errorf("replaced, it is current: %t, with the text %q", s.Current(first), text)
	}
	if got, err := use(t, s, "key").Text("Bearer "); err != nil || got != "Bearer the-second-value" {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.Set(nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Use("key"); ok {
		t.Error("it is there although it was removed")
	}
	if text != "Bearer the-first-value" {
		t.Errorf("removed, a text in use is %q", text)
	}
}

// The memory is bounded, and what is replaced while nothing uses it makes room again.
func TestRoom(t *testing.T) {
	s := newStore(t)
	big := strings.Repeat("<", secret.Most)
	set(t, s, "key", big)
	for range 3 { // what is refused takes no room
		many := map[string]io.Reader{}
		for n := range 1000 {
			many[fmt.Sprint("key", n)] = strings.NewReader(big)
		}
		if err := s.Set(many); sbxerr.Of(err) != sbxerr.Secret || !strings.Contains(err.Error(), "is full") {
			t.Fatal(err)
		}
	}
	if got, err := use(t, s, "key").Text(""); err != nil || got != big {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	few := map[string]io.Reader{}
	for n := range 10 {
		few[fmt.Sprint("key", n)] = strings.NewReader(big)
	}
	if err := s.Set(few); err != nil {
		t.Error(err)
	}
}

func TestReadsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newStore(t)
	if err := s.Set(one("key", f)); err != nil {
		t.Fatal(err)
	}
	if got, err := use(t, s, "key").Text(""); err != nil || got != value {
		t.Errorf("%q, %v", got, err)
	}
}
