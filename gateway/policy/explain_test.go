package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestExplainGolden(t *testing.T) {
	var b strings.Builder
	for _, s := range []Spec{rich, {Mode: Open, Deny: []string{"[2a00::/16]", "*.com:25"}}, {}} {
		for _, line := range mustCompile(t, s).Explain() {
			fmt.Fprintf(&b, "%s: %s\n", line.Rule, line.Effect)
		}
		b.WriteByte('\n')
	}
	const golden = "testdata/explain.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("differs from %s (run with -update):\n%s", golden, b.String())
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"https://User:pw@API.example.com/v1?x#y": "api.example.com:443", "http://api.example.com": "api.example.com:80", "wss://a.test": "a.test:443",
		"https://a.test:8443/": "a.test:8443", "redis://a.test:6379": "a.test:6379", "ssh://git@a.test/x": "a.test:22", "postgres://a.test/db": "a.test:5432", "http://[::ffff:9.9.9.9]/": "9.9.9.9:80", "::ffff:9.9.9.9": "9.9.9.9:443",
		"a.test": "a.test:443", "a.test:22": "a.test:22", "9.9.9.9": "9.9.9.9:443", "9.9.9.9:22": "9.9.9.9:22",
		"2a00::1": "[2a00::1]:443", "[2a00::1]:22": "[2a00::1]:22", "http://[2a00::1]/": "[2a00::1]:80", "[2a00::1]": "[2a00::1]:443",
	} {
		got, err := ParseTarget(in)
		if s := (Seen{Name: got.Name, Address: got.Address, Port: got.Port}).String(); err != nil || s != want {
			t.Errorf("%q: %s, %v; want %s", in, s, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "is empty", "https://": "no URL", "https://%zz": "no URL", "gopher://a.test": "whose port is not known", "a.test:0": `port "0"`,
		"a.test:1:2": "two colons", "a b": "white space", "*.a.test": "wildcard", "https://0x7f.1/": "IPv4 address", strings.Repeat("a", 2000): "longer than",
	} {
		if got, err := ParseTarget(in); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) || got != (Target{}) {
			t.Errorf("%q: %+v, %v; want %q", in, got, err, want)
		}
	}
}
