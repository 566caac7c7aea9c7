package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseRule(t *testing.T) {
	for in, want := range map[string]string{
		"github.com":                   "github.com:80+443",
		"GitHub.com.:443":              "github.com:443",
		"github.com:443+22":            "github.com:22+443",
		"github.com:443+443":           "github.com:443",
		"github.com,private":           "github.com:80+443,private",
		"db.corp:5432,private":         "db.corp:5432,private",
		"intranet:80,private":          "intranet:80,private",
		"nexus:8081,private":           "nexus:8081,private", // a registry has it, too
		"*.corp,private":               "*.corp:80+443,private",
		"*.example.com":                "*.example.com:80+443",
		"*.a.github.io:443":            "*.a.github.io:443",
		"github.io":                    "github.io:80+443", // a suffix of a company may be a host
		"bücher.example":               "xn--bcher-kva.example:80+443",
		"*.city.kawasaki.jp:443":       "*.city.kawasaki.jp:443", // an exception of *.kawasaki.jp
		"*.a.b.kawasaki.jp:443":        "*.a.b.kawasaki.jp:443",
		"*.amazonaws.com:443":          "*.amazonaws.com:443", // without the public suffixes below it
		"*.bücher.example:1":           "*.xn--bcher-kva.example:1",
		"9.9.9.0/24:443":               "9.9.9.0/24:443",
		"9.9.9.9:53+65535":             "9.9.9.9:53+65535",
		"9.9.9.9/32":                   "9.9.9.9:80+443",
		"10.0.0.0/8:5432,private":      "10.0.0.0/8:5432,private",
		"128.0.0.0/2:443":              "128.0.0.0/2:443",
		"169.254.169.254:80,private":   "169.254.169.254:80,private",
		strings.Repeat("a", 63) + ".x": strings.Repeat("a", 63) + ".x:80+443",
	} {
		r, err := ParseRule(ActAllow, in)
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v; want %q", in, r, err, want)
			continue
		}
		again, err := ParseRule(ActAllow, want)
		if err != nil || again.String() != want || !slices.Equal(again.Ports, r.Ports) {
			t.Errorf("%q does not read back: %+v, %v", want, again, err)
		}
	}
	for in, want := range map[string]string{
		"evil.test": "evil.test", "evil.test:25": "evil.test:25", "*.com": "*.com", "co.uk": "co.uk", "*.ck": "*.ck", "*.compute.amazonaws.com": "*.compute.amazonaws.com",
		"0.0.0.0/0": "0.0.0.0/0", "10.0.0.0/8:22": "10.0.0.0/8:22", "[::/0]:25": "[::/0]:25", "[2A00:1450::5]": "[2a00:1450::5]", "127.0.0.0/8": "127.0.0.0/8", "0.0.0.0/1": "0.0.0.0/1", "224.0.0.0/4": "224.0.0.0/4",
	} {
		if r, err := ParseRule(ActDeny, in); err != nil || r.String() != want {
			t.Errorf("deny %q: %q, %v; want %q", in, r, err, want)
		}
	}
}

func TestParseRuleRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "is empty",
		strings.Repeat("a", 600):     "longer than 512",
		"a b.example":                "white space",
		"a.example\n":                "white space",
		"https://api.example.com/v1": "write the host alone: api.example.com",
		"://":                        "is a URL",
		"*":                          "mode open",
		"*:443":                      "mode open",
		"*,private":                  "mode open",
		"*.com":                      "*.com covers a public suffix",
		"*.co.uk":                    "*.co.uk covers a public suffix",
		"*.github.io":                "*.github.io covers a public suffix",
		"*.corp":                     "for a zone of your own network, write *.corp,private",
		"*.com,private":              "*.com covers a public suffix",
		"*.github.io,private":        "*.github.io covers a public suffix",
		"co.uk,private":              "co.uk is a public suffix",
		"nexus":                      "for a host of that name on your own network, write nexus,private",
		"*.s3.amazonaws.com":         "*.s3.amazonaws.com covers a public suffix",
		"*.compute.amazonaws.com":    "every name directly below compute.amazonaws.com is one", // the list has *.compute.amazonaws.com
		"*.x.compute.amazonaws.com":  "*.x.compute.amazonaws.com covers a public suffix",
		"*.kawasaki.jp,private":      "use *.NAME.SUFFIX.kawasaki.jp",
		"*.ck":                       "use *.NAME.SUFFIX.ck",
		"com":                        "com is a public suffix",
		"CO.UK:443":                  "co.uk is a public suffix",
		"*example.com":               "whole first label",
		"a.*.example.com":            "whole first label",
		"*.*.example.com":            "whole first label",
		"*.":                         "its host is empty",
		":443":                       "its host is empty",
		"example.com:":               `port ""`,
		"example.com:0":              `port "0"`,
		"example.com:70000":          `port "70000"`,
		"example.com:-1":             `port "-1"`,
		"example.com:0443":           `port "0443"`,
		"example.com:+443":           `port ""`,
		"example.com:443+":           `port ""`,
		"example.com:https":          `port "https"`,
		"example.com:443:80":         "two colons",
		"example.com:1" + strings.Repeat("+1", 64): "more than 64 ports",
		"example.com:443,":                         `option ""`,
		"example.com,Private":                      `option "Private"`,
		"example.com,private,private":              "twice",
		"example.com,private=true":                 `option "private=true"`,
		"example.com,raw":                          `there are ["opaque" "private"]`,
		"example.com,opaque,opaque":                "twice",
		"example.com:22,opaque":                    "other ports are not read, so leave it out",
		"9.9.9.0/24:443,opaque":                    "connections to addresses are not read, so leave it out",
		"user@example.com":                         "user name",
		"10.0.0.1/8":                               "did you mean 10.0.0.0/8",
		"[2001:db8::1/32]":                         "literal IPv6",
		"10.0.0.0/33":                              "not ADDRESS/BITS",
		"010.0.0.0/8":                              "not ADDRESS/BITS",
		"10.0.0.0/":                                "not ADDRESS/BITS",
		"[::/zz]":                                  "not ADDRESS/BITS",
		"0.0.0.0/0":                                "covers every address",
		"[::/0]:443":                               "covers every address",
		"10.0.0.0/8:5432":                          "write 10.0.0.0/8:5432,private",
		"127.0.0.1":                                "inside they are the sandbox's own",
		"127.0.0.1:80,private":                     "inside they are the sandbox's own",
		"0.0.0.0/1:443":                            "loopback addresses (127.0.0.0/8)",
		"[fd00::/8]:443,private":                   "literal IPv6",
		"[2a00:1450::5]":                           "literal IPv6",
		"224.0.0.1,private":                        "never reached: multicast",
		"0.0.0.0,private":                          "never reached: this network",
		"[fd00:ec2::/64],private":                  "literal IPv6",
		"169.254.169.254":                          "write 169.254.169.254:80+443,private",
		"169.254.42.0/24,private":                  "each must be spelled",
		"198.18.0.0/16,private":                    "overlap 198.18.0.0/15",
		"198.0.0.0/8":                              "overlap 198.18.0.0/15",
		"2130706433":                               "IPv4 address",
		"0x7f.1:80":                                "IPv4 address",
		"2001:db8::1":                              "literal IPv6",
		"2001:db8::/32":                            "literal IPv6",
		"[2001:db8::1":                             "do not close",
		"[2001:db8::1]443":                         "do not close",
		"[2001:db8::]/32":                          "do not close",
		"[example.com]:443":                        "no IPv6 address",
		"[a:b]:443":                                "no IPv6 address",
		"[fe80::1%eth0]:80":                        "has a zone",
		"[::ffff:9.9.9.9]:80":                      "write 9.9.9.9",
		"[::ffff:9.9.9.0/120]:80":                  "",
	} {
		r, err := ParseRule(ActAllow, in)
		if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) || r.Action != "" {
			t.Errorf("%.80q: %q, %v; want a refusal that says %q", in, r, err, want)
			continue
		}
		if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "*.example.com") {
			t.Errorf("%q: no example in %q", in, remedy)
		}
	}
	for in, want := range map[string]string{"2001:db8::1": "write [2001:db8::1], and", "[2001:db8::1/32]": "did you mean 2001:db8::/32", "*": "network mode none", "*:25": "leave out the rules that allow", "evil.test,private": "for rules that allow", "evil.test:443,opaque": "for rules that allow"} {
		if _, err := ParseRule(ActDeny, in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("deny %q: %v", in, err)
		}
	}
	if _, err := ParseRule("", "example.com"); err == nil {
		t.Error("a rule without an action was read")
	}
}

// A rule that allows is of names that can be asked for; one that denies need not be.
func TestParseRuleTooLongToAsk(t *testing.T) {
	labels := func(n int) string { return strings.Repeat("a.", n-1) + "example" }
	bytes := strings.Repeat(strings.Repeat("a", 49)+".", 4) // 200
	for in, want := range map[string]bool{
		labels(16): true, labels(17): false, "*." + labels(15): true, "*." + labels(16): false,
		bytes[:199] + "a": true, bytes[:199] + "ab": false, "*." + bytes[:198]: true, "*." + bytes[:199]: false,
	} {
		_, err := ParseRule(ActAllow, in)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "more than 200 bytes or 16 labels") {
			t.Errorf("%q: %v, want %v", in, err, want)
		}
		if _, err := ParseRule(ActDeny, in); err != nil {
			t.Errorf("deny %q: %v", in, err)
		}
	}
}

// The examples that refusals give must be rules.
func TestExamplesAreRules(t *testing.T) {
	for _, in := range []string{"github.com:443+22", "*.example.com", "10.1.0.0/16:5432,private"} {
		if _, err := ParseRule(ActAllow, in); err != nil || !strings.Contains(exampleRule, in) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// FuzzParseRule: a rule reads back as itself, and never covers everything.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"github.com:443+22", "*.example.com", "10.1.0.0/16:5432,private", "[2001:db8::/32]:443", "*", "a:0", "1.2.3.4", "x,private,private"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, deny bool) {
		action := ActAllow
		if deny {
			action = ActDeny
		}
		r, err := ParseRule(action, s)
		if err != nil {
			if sbxerr.Of(err) != sbxerr.NetPolicy {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := ParseRule(action, r.String())
		if err != nil || again.String() != r.String() || again.Private != r.Private || again.Wildcard != r.Wildcard || again.Prefix != r.Prefix {
			t.Fatalf("%q: %q becomes %q, %v", s, r, again, err)
		}
		if (r.Name == "") != r.Prefix.IsValid() || !deny && len(r.Ports) == 0 || deny && r.Private {
			t.Fatalf("%q: %+v", s, r)
		}
		if !deny && (r.Prefix.IsValid() && (r.Prefix.Bits() == 0 || r.Prefix.Overlaps(Pool)) || r.Wildcard && !strings.Contains(string(r.Name), ".")) {
			t.Fatalf("%q allows too much: %+v", s, r)
		}
		if !deny && r.Prefix.IsValid() && (r.Prefix.Addr().Is6() || r.Prefix.Overlaps(netip.MustParsePrefix("127.0.0.0/8"))) {
			t.Fatalf("%q allows what has no way to the gateway: %+v", s, r)
		}
		if r.Name != "" {
			checkCanonical(t, s, r.Name)
		}
	})
}
