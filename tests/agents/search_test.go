package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// searched has what expressions of different families read differently.
var searched = []string{
	"d", "7", "\td x", "a.b", "axb", `back\slash`, "[x]", "]", "a-b", "-", "^", "caret^", "$5", "a{2}", "aa", "aaa", "(a)", "a|b", "x*", "++",
	"foobar", "foo bar", "Foo", "FOO", "ä", "Ä", "naïve", "under_score", `"quoted"`, "", " ", "ab12", "word", "w", "s", "K", "~", "a=b", "[.", "[:x",
}

// TestSearchSyntax compares searches with Go's expressions on the same lines, by line.
func TestSearchSyntax(t *testing.T) {
	dir := readableDir(t)
	if err := os.WriteFile(filepath.Join(dir, "lines"), []byte(strings.Join(searched, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := bound(t, daemon, "syntax", "--workspace", dir)
	for _, pattern := range []string{
		`\d`, `\D`, `\w+`, `\W`, `\s`, `^\S+$`, `\bbar\b`, `\Bbar`, `a.b`, `a\.b`, `a{2}`, `a\{2\}`, `^a{2,}$`, `^(aa){1,3}$`, `a?`, `.*?b`, `(?i)foo`, `(?i:f)oo`, `(?i)ä`,
		`(?P<n>foo) bar`, `(?:x|y)`, `^(a|)$`, `[]]`, `[\]x]`, `[\\]`, `[^a-z]`, `^[^a-zA-Z0-9 ]+$`, `[a^]`, `[\^]`, `[-^]`, `[^^]`, `[\^-]`, `\^`, `[[.]`, `[:[]`, `^$`, `\$5`, `x\*`, `\+\+`, `\(a\)`, `a\|b`,
		`^(ä|ï)$`, `[à-üÄd]`, `na.*ve`, `[[:digit:]]`, `\x41|\x{64}`, `\Qa.b\E`, `"[^"]*"`, `[\t]`, `(?i)[k-l]`, `(?s).`, `^-$`, `_`,
	} {
		re := regexp.MustCompile("(?m)" + pattern)
		var want strings.Builder
		for i, line := range searched {
			if re.MatchString(line) {
				fmt.Fprintf(&want, "/workspace/lines:%d:%s\n", i+1, line)
			}
		}
		_, got := c.call(t, "search_files", arguments{"pattern": pattern})
		if want.Len() == 0 {
			t.Errorf("%s finds nothing, and so shows nothing", pattern)
		}
		if got != want.String() {
			t.Errorf("%s: got\n%swant\n%s", pattern, got, want.String())
		}
	}
}

// TestSearchFails: a search that cannot be made is an error, and a file that cannot be
// read is named.
func TestSearchFails(t *testing.T) {
	c := bound(t, daemon, "searching")
	for pattern, want := range map[string]string{
		"": "empty", "[": "missing closing ]", "(?=a)": "invalid or unsupported", `(a)\1`: "invalid escape", `\Aa`: "search by line", "a\nb": "line end",
		`\p{Greek}`: "outside ASCII", "[^ä]": "outside ASCII", "a{256}": "255",
	} {
		c.fails(t, want, "search_files", arguments{"pattern": pattern, "path": "/etc"})
	}
	c.fails(t, "SBX-212", "search_files", arguments{"pattern": "a", "path": "/none"})
	c.bash(t, "mkdir /tmp/d /tmp/bin; echo secret > /tmp/d/closed; chmod 0 /tmp/d/closed; ln -s d /tmp/link; echo a > /tmp/d/open")
	if _, text := c.call(t, "search_files", arguments{"pattern": "secret", "path": "/tmp/d"}); !strings.Contains(text, "nothing found") || !strings.Contains(text, "closed") {
		t.Errorf("a closed file: %q", text)
	}
	c.bash(t, `printf 'a\0b\na\001\377\n' > /tmp/d/oprogram`)
	if _, text := c.call(t, "search_files", arguments{"pattern": "^a", "path": "/tmp/link", "glob": "o*"}); text != "/tmp/link/open:1:a\n" {
		t.Errorf("below a link: %q", text)
	}
}
