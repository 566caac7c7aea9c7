package upstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const secret = "agent:s3cr:et"

func compile(t testing.TB, s Spec) *Proxy {
	t.Helper()
	u, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCompile(t *testing.T) {
	for url, want := range map[string]string{
		"http://proxy.corp:3128":     "http://proxy.corp:3128",
		"http://Proxy.Example:3128/": "http://proxy.example:3128",
		"socks5://192.0.2.7:1080":    "socks5://192.0.2.7:1080",
		"http://[2001:db8::7]:3128":  "http://[2001:db8::7]:3128",
		"http://127.0.0.1:3128":      "http://127.0.0.1:3128",
	} {
		u, err := Compile(Spec{URL: url, Except: []string{"intern.example.com", "*.corp.example", "192.0.2.0/24", "2001:db8::/32", "9.9.9.9"}, Credentials: NewSecret(secret)})
		if err != nil || u.String() != want {
			t.Errorf("%s: %v, %v; want %s", url, u, err, want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	good := Spec{URL: "http://proxy.corp:3128"}
	for _, tc := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.URL = "" }, "is no URL"},
		{func(s *Spec) { s.URL = "proxy.corp:3128" }, "is no URL"},
		{func(s *Spec) { s.URL = "https://proxy.corp:3128" }, "TLS to the proxy itself is not offered"},
		{func(s *Spec) { s.URL = "socks4://proxy.corp:1080" }, "neither http nor socks5"},
		{func(s *Spec) { s.URL = "http://proxy.corp" }, "none is taken for granted"},
		{func(s *Spec) { s.URL = "http://proxy.corp:0" }, `port "0"`},
		{func(s *Spec) { s.URL = "http://proxy.corp:70000" }, `port "70000"`},
		{func(s *Spec) { s.URL = "http://proxy.corp:3128/path" }, "more than a scheme"},
		{func(s *Spec) { s.URL = "http://proxy.corp:3128?x" }, "more than a scheme"},
		{func(s *Spec) { s.URL = "http://pro_xy:3128" }, "underscore"},
		{func(s *Spec) { s.URL = "http://0.0.0.0:3128" }, "no proxy is at"},
		{func(s *Spec) { s.URL = "http://198.18.0.9:3128" }, "no proxy is at"},
		{func(s *Spec) { s.URL = "http://" + secret + "@proxy.corp:3128" }, "holds credentials"},
		{func(s *Spec) { s.URL = "http://" + secret + "%@proxy.corp:port" }, "holds credentials"},
		{func(s *Spec) { s.Except = []string{"*"} }, "covers every host"},
		{func(s *Spec) { s.Except = []string{"a.example:443"} }, "without a port"},
		{func(s *Spec) { s.Except = []string{"10.0.0.1/8"} }, "did you mean 10.0.0.0/8"},
		{func(s *Spec) { s.Except = []string{"no name", "x..y"} }, "empty label"},
		{func(s *Spec) { s.Credentials = NewSecret("s3cr") }, "no user, colon and password"},
		{func(s *Spec) { s.Credentials = NewSecret(":s3cr") }, "no user, colon and password"},
		{func(s *Spec) { s.Credentials = NewSecret("agent:s3cr\r\nX: y") }, "control character"},
		{func(s *Spec) { s.Credentials = NewSecret("agent:s3cr" + strings.Repeat("x", 255)) }, "more than 255 bytes"},
	} {
		s := good
		tc.change(&s)
		_, err := Compile(s)
		if sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "network.upstream_proxy.") || sbxerr.RemedyOf(err) == "" {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if strings.Contains(fmt.Sprint(err), "s3cr") {
			t.Errorf("it shows a secret: %v", err)
		}
	}
}

// Whoever prints what holds the credentials prints a mask.
func TestSecretIsNotSeen(t *testing.T) {
	s := Spec{URL: "http://proxy.corp:3128", Credentials: NewSecret(secret)}
	u := compile(t, s)
	if s.Credentials.Reveal() != secret || u.Spec().Credentials.Reveal() != secret {
		t.Fatal("it is not kept")
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, s.Credentials, s.Credentials, s.Credentials), fmt.Sprintf("%v %+v %#v", u, *u, *u), string(encoded),
	} {
		if strings.Contains(text, "s3cr") || strings.Contains(text, fmt.Sprintf("%x", "s3cr")) {
			t.Errorf("it is seen: %s", text)
		}
	}
}
