package netns

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseMode(t *testing.T) {
	for s, want := range map[string]Mode{"": ModeNone, "none": ModeNone, "allow": ModeAllow, "open": ModeOpen, "bridge": ModeBridge} {
		if m, err := ParseMode(s); m != want || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v; want %q", s, m, err, want)
		}
	}
	for s, want := range map[string]string{
		"non":                     `did you mean "none"`,
		"None":                    `did you mean "none"`,
		"alow":                    `did you mean "allow"`,
		"birdge":                  `did you mean "bridge"`,
		"host":                    `there are ["none" "allow" "open" "bridge"]`,
		"none ":                   `did you mean "none"`,
		"\x00":                    `"\x00"`,
		strings.Repeat("x", 4096): "…",
	} {
		m, err := ParseMode(s)
		if m != "" || sbxerr.Of(err) != sbxerr.NetworkMode {
			t.Errorf("ParseMode(%.20q) = %q, %v; want a refusal with %s", s, m, err, sbxerr.NetworkMode)
			continue
		}
		if !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
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
		taken := s == "" && m == ModeNone || string(m) == s && slices.Contains([]Mode{ModeNone, ModeAllow, ModeOpen, ModeBridge}, m)
		if (err == nil) != taken || err != nil && m != "" {
			t.Errorf("ParseMode(%q) = %q, %v", s, m, err)
		}
	})
}

func TestDescribe(t *testing.T) {
	for _, m := range Modes() {
		if m.Mode == ModeBridge { // see TestBridgeDescribe
			continue
		}
		text := strings.Join(m.Mode.Describe(), "\n")
		for _, s := range Sysctls() {
			if s.Why == "" || !strings.Contains(text, s.Key+" = "+s.Value) {
				t.Errorf("mode %q: setting %s = %q (why %q) is not described", m.Mode, s.Key, s.Value, s.Why)
			}
		}
	}
	none, allow := strings.Join(ModeNone.Describe(), "\n"), strings.Join(ModeAllow.Describe(), "\n")
	for _, rule := range []string{"iptables -t nat -A OUTPUT ! -d", "ip6tables -t filter -P OUTPUT DROP", "-P FORWARD DROP"} {
		if !strings.Contains(allow, rule) || strings.Contains(none, rule) {
			t.Errorf("%q is to be described for mode allow, not for none:\n%s", rule, allow)
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
