package netns

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sbxerr"
)

func TestParseMode(t *testing.T) {
	for _, s := range []string{"", "none"} {
		if m, err := ParseMode(s); m != ModeNone || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v; want %q", s, m, err, ModeNone)
		}
	}
	for s, want := range map[string]string{
		"allow":                   "not offered yet",
		"open":                    "not offered yet",
		"bridge":                  "not offered yet",
		"non":                     `did you mean "none"`,
		"None":                    `did you mean "none"`,
		"alow":                    `did you mean "allow"`,
		"birdge":                  `did you mean "bridge"`,
		"host":                    `offered is ["none"]`,
		"none ":                   `did you mean "none"`,
		"\x00":                    `"\x00"`,
		strings.Repeat("x", 4096): "…",
	} {
		m, err := ParseMode(s)
		if m != "" || sbxerr.Of(err) != sbxerr.NetworkMode {
			t.Errorf("ParseMode(%.20q) = %q, %v; want a refusal with %s", s, m, err, sbxerr.NetworkMode)
			continue
		}
		if !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("ParseMode(%.20q) = %v; want it short and with %s", s, err, want)
		}
	}
}

func FuzzParseMode(f *testing.F) {
	for _, m := range modes {
		f.Add(string(m.Mode))
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMode(s)
		if (err == nil) != (m == ModeNone) || err == nil && s != "" && s != "none" {
			t.Errorf("ParseMode(%q) = %q, %v", s, m, err)
		}
	})
}

func TestDescribe(t *testing.T) {
	text := strings.Join(ModeNone.Describe(), "\n")
	for _, s := range Sysctls() {
		if s.Why == "" || !strings.Contains(text, s.Key+" = "+s.Value) {
			t.Errorf("setting %s = %q (why %q) is not described", s.Key, s.Value, s.Why)
		}
	}
	for _, m := range Modes() {
		if !m.Offered && m.Mode.Describe() != nil {
			t.Errorf("mode %q is described but not offered", m.Mode)
		}
	}
}

// An absolute or climbing key would write outside /proc/sys/net.
func TestSysctlsStayInTheNamespace(t *testing.T) {
	for _, s := range sysctls {
		if !strings.HasPrefix(s.path(), "/proc/sys/net/") || strings.Contains(s.path(), "..") {
			t.Errorf("setting %q is at %q", s.Key, s.path())
		}
		if s.IPv6 != strings.HasPrefix(s.Key, "net.ipv6.") {
			t.Errorf("setting %q is marked IPv6 %v", s.Key, s.IPv6)
		}
	}
}
