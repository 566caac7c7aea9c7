package image

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: no user file of an image costs more than a request may.
func TestCost(t *testing.T) {
	filled := func(line string) string { return strings.Repeat(line, maxUserFile/len(line)) }
	passwd := filled("a:x:5:5:::\n")
	for name, group := range map[string]string{
		"short lines":   filled("a::1:\n"),
		"long names":    filled(strings.Repeat("a", 31) + "::1:\n"),
		"many members":  "g:x:7:" + filled("a,")[:maxUserFile-100] + "\n",
		"many groups":   filled("g:x:7:u\n"),
		"no lines":      filled(":"),
		"empty lines":   filled("\n"),
		"one long name": filled("a"),
	} {
		for _, user := range []string{"u", "5", "1000", "u:g"} {
			t.Run(name+"/"+user, func(t *testing.T) {
				bound.Check(t, len(passwd)+len(group), func() {
					_, _ = ResolveUser(user, strings.NewReader(passwd[:maxUserFile-100]+"\nu:x:1000:1000:::\n"), strings.NewReader(group)) // it may be refused
				})
			})
		}
	}
}
