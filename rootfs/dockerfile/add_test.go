package dockerfile

import (
	"fmt"
	"strings"
	"testing"
)

// TestDownloads: URLs come in a step of their own, under the names that their paths end in.
func TestDownloads(t *testing.T) {
	sum := "sha256:" + strings.Repeat("a", 64)
	for add, want := range map[string]string{
		"https://x.example/a/b.tgz?c=d#e /opt/":      "[{https://x.example/a/b.tgz?c=d#e b.tgz}] /opt/  false",
		"--unpack=true http://x.example/b.tgz opt":   "[{http://x.example/b.tgz b.tgz}] /srv/opt  true",
		"https://x.example /f":                       "[{https://x.example __unnamed__}] /f  false",
		"https://x.example/%5Ba%5D%20b /opt/":        "[{https://x.example/%5Ba%5D%20b [a] b}] /opt/  false",
		"--checksum=" + sum + " https://$HOST/a /f":  "[{https://y.example/a a}] /f " + sum + " false",
		"https://x.example/a f http://x.example/b /": "[] [f] / | [{https://x.example/a a} {http://x.example/b b}] /  false",
	} {
		p := plan(t, "FROM base\nENV HOST=y.example\nWORKDIR /srv\nADD "+add+"\n", Options{})
		var got []string
		for _, s := range p.Stages[0].Steps[1:] {
			if c := s.Copy; len(c.Downloads) == 0 {
				got = append(got, fmt.Sprint("[] ", c.Sources, " ", c.Dest))
			} else {
				got = append(got, fmt.Sprint(c.Downloads, " ", c.Dest, " ", c.Checksum, " ", c.Unpack))
			}
		}
		if text := strings.Join(got, " | "); text != want {
			t.Errorf("ADD %s: %s, want %s", add, text, want)
		}
	}
}
