package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestParseName(t *testing.T) {
	for in, want := range map[string]Name{
		"example.com":                        "example.com",
		"EXAMPLE.Com":                        "example.com",
		"example.com.":                       "example.com",
		"intranet":                           "intranet",
		"r3---sn.example.com":                "r3---sn.example.com",
		"bücher.example":                     "xn--bcher-kva.example",
		"BÜCHER.example":                     "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":              "xn--bcher-kva.example",
		"faß.example":                        "xn--fa-hia.example", // not fass: UTS #46 nontransitional
		"example。com":                        "example.com",        // ideographic full stop
		"ｅｘａｍｐｌｅ.com":                        "example.com",        // full width
		"exa\u00admple.com":                  "example.com",        // soft hyphen
		"1.2.3.4.example":                    "1.2.3.4.example",
		"0x7f.example":                       "0x7f.example",
		"4ever.example":                      "4ever.example",
		strings.Repeat("a", 63) + ".example": Name(strings.Repeat("a", 63) + ".example"),
		strings.Repeat("a.", 126) + "a":      Name(strings.Repeat("a.", 126) + "a"),
	} {
		if got, err := ParseName(in); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseNameRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "is empty",
		".":                                  "",
		"..":                                 "",
		"example..com":                       "",
		".example.com":                       "",
		"example.com..":                      "",
		"example.com\x00.evil.test":          "NUL",
		"example.com\r\nHost: x":             "white space",
		" example.com":                       "white space",
		"example.com\t":                      "white space",
		"user@example.com":                   "user name",
		"example.com/evil":                   "slash",
		"evil.test#example.com":              "",
		"evil.test?example.com":              "",
		"example.com:443":                    "",
		"example.com%00":                     "percent",
		"*.example.com":                      "wildcard",
		"my_host.example.com":                "underscore",
		"example.com\\@evil.test":            "user name",
		"example.com\\.evil.test":            "",
		"-a.example.com":                     "hyphen",
		"a-.example.com":                     "hyphen",
		"xn--a.example":                      "IDNA",
		"xn--ls8h=.example":                  "",
		"\xff.example":                       "UTF-8",
		"a\u202eb.example":                   "IDNA",
		"10.0.0.1":                           "is an address",
		"::1":                                "is an address",
		"[::1]":                              "is an address",
		"[::ffff:10.0.0.1]":                  "is an address",
		"127.1":                              "IPv4 address",
		"0x7f.1":                             "IPv4 address",
		"0x7F000001":                         "IPv4 address",
		"2130706433":                         "IPv4 address",
		"0177.0.0.1":                         "IPv4 address",
		"１２７.０.０.１":                          "IPv4 address", // full width
		"127.0.0.1.":                         "IPv4 address",
		"a.0x":                               "IPv4 address",
		strings.Repeat("a", 64) + ".example": "",
		strings.Repeat("a.", 127) + "a":      "",
		strings.Repeat("a", 2000):            "longer than 1024",
	} {
		got, err := ParseName(in)
		if sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %q, %v; want a refusal that says %q", in, got, err, want)
			continue
		}
		if !strings.Contains(sbxerr.RemedyOf(err), "api.example.com") {
			t.Errorf("%q: no example in %q", in, sbxerr.RemedyOf(err))
		}
	}
}

func TestParseWireName(t *testing.T) {
	if got, err := ParseWireName("Example.COM"); got != "example.com" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, in := range []string{"bücher.example", "ｅxample.com", "example.com\x7f", ""} {
		if got, err := ParseWireName(in); sbxerr.Of(err) != sbxerr.NetPolicy {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// FuzzParseName: what comes out is a host name by RFC 952 and 1123, is its own
// canonical form, and cannot be read as an address.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"example.com", "BÜCHER.example.", "xn--bcher-kva.example", "0x7f.1", "1.2.3.4", "a\x00b", "ａ。ｂ", "-.-", "xn--", "ß.example", "a_b", "*.x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := ParseName(s)
		if err != nil {
			if name != "" || sbxerr.Of(err) != sbxerr.NetPolicy {
				t.Fatalf("%q: %q, %v", s, name, err)
			}
			return
		}
		checkCanonical(t, s, name)
		if ascii, err := profile.ToASCII(s); err != nil || strings.TrimSuffix(ascii, ".") != string(name) {
			t.Fatalf("%q: IDNA makes it %q, %v; we %q", s, ascii, err, name)
		}
		if again, err := ParseWireName(string(name)); again != name || err != nil {
			t.Fatalf("%q: canonical form %q becomes %q, %v", s, name, again, err)
		}
	})
}

// checkCanonical is an oracle that shares no code with the parser.
func checkCanonical(t *testing.T, s string, name Name) {
	t.Helper()
	if len(name) == 0 || len(name) > 253 {
		t.Fatalf("%q: %d bytes", s, len(name))
	}
	letters := 0
	for _, label := range strings.Split(string(name), ".") {
		if len(label) == 0 || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			t.Fatalf("%q: label %q of %q", s, label, name)
		}
		letters = 0
		for _, c := range []byte(label) {
			switch {
			case c >= 'a' && c <= 'z':
				letters++
			case c >= '0' && c <= '9', c == '-':
			default:
				t.Fatalf("%q: byte %q in %q", s, c, name)
			}
		}
	}
	if last := string(name)[strings.LastIndexByte(string(name), '.')+1:]; letters == 0 && !strings.Contains(last, "-") {
		t.Fatalf("%q: %q ends in a number", s, name)
	}
}
