package layertar

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestMerge: what is there already is merged with, or what would destroy it is refused.
func TestMerge(t *testing.T) {
	from := tree(t, "root/bin/tool", "root/usr/bin/tool", "root/etc/x", "a/one", "b/one", "b/two/x", "f", "g -> f", "dirs/f/x", "dirs/g/y", "lost/gone/x", "filed/glink/x")
	into := tree(t, "usr/bin/sh", "bin -> usr/bin", "etc/passwd", "f/kept", "g", "app -> /usr", "two", "gone -> nowhere/at/all", "glink -> g")
	for name, tt := range map[string]struct {
		sources []string
		dest    string
		want    string // of the layer, or of the refusal
	}{
		"a directory over a link":      {[]string{"root"}, "/", "etc/ 755\netc/x 644\nusr/ 755\nusr/bin/ 755\nusr/bin/tool 644"},
		"over a link to nothing":       {[]string{"lost"}, "/", `"/gone" of the image is a link that leads nowhere`},
		"over a link to a file":        {[]string{"filed"}, "/", `"/g" of the image is a file`},
		"through a link":               {[]string{"root/bin"}, "/bin", "usr/bin/tool 644"},
		"into a merged tree":           {[]string{"root/usr"}, "/usr", "usr/bin/ 755\nusr/bin/tool 644"},
		"a file over a directory":      {[]string{"f"}, "/", `"/f" of the image is a directory`},
		"a file to a directory's name": {[]string{"f"}, "/f", "f/f 644"},
		"a directory over a file":      {[]string{"b"}, "/", `"/two" of the image is a file`},
		"one name twice":               {[]string{"a", "b"}, "/new", "new/ 755\nnew/one 644\nnew/two/ 755\nnew/two/x 644"},
		"a file and then a directory":  {[]string{"f", "dirs"}, "/new/", `"/new/f" of the image is a file`},
		"a link is followed":           {[]string{"g"}, "/new/", "new/ 755\nnew/g 644"},
		"into a link that leads away":  {[]string{"a"}, "/gone", "nowhere/ 755\nnowhere/at/ 755\nnowhere/at/all/ 755\nnowhere/at/all/one 644"},
		"a whiteout":                   {[]string{"f"}, "/.wh.etc", "removal of a file"},
	} {
		check(t, name, Copy{From: from, Into: into, Sources: tt.sources, Dest: tt.dest}, tt.want)
	}
}

// check compares the names and modes of a layer, or the refusal.
func check(t *testing.T, name string, c Copy, want string) {
	t.Helper()
	var out bytes.Buffer
	if err := write(c, &out); err != nil {
		if !errors.Is(err, sbxerr.Config) && !errors.Is(err, sbxerr.ImageContent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		return
	}
	var lines []string
	for line := range strings.SplitSeq(listed(t, &out), "\n") {
		if fields := strings.Fields(line); len(fields) > 2 {
			lines = append(lines, strings.Join(append(fields[:2:2], fields[3:]...), " "))
		}
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

// TestSourceLinks: links of a source lead inside the tree of the sources.
func TestSourceLinks(t *testing.T) {
	from := tree(t, "real/x", "real/sub -> x", "abs -> /real", "chain -> abs", "up -> ../../../real/x", "file -> /real/x", "out -> /etc/passwd", "real/back -> ../abs")
	into := tree(t, "x")
	for name, tt := range map[string]struct{ source, dest, want string }{
		"an absolute link":      {"abs", "/d", "d/ 755\nd/back 777 -> ../abs\nd/sub 777 -> x\nd/x 644"},
		"a chain":               {"chain", "/d/", "d/ 755\nd/back 777 -> ../abs\nd/sub 777 -> x\nd/x 644"},
		"below a link":          {"abs/x", "/d", "d 644"},
		"above the tree":        {"up", "/d/", "d/ 755\nd/up 644"},
		"a file":                {"file", "/d", "d 644"},
		"a file of the host":    {"out", "/d", `there is no "out"`},
		"a pattern in a link":   {"chain/*x", "/d/", "d/ 755\nd/x 644"},
		"a matched link":        {"fil?", "/d/", "d/ 755\nd/file 644"},
		"a pattern's directory": {"nothing/*", "/d/", "no directory for the pattern"},
	} {
		check(t, name, Copy{From: from, Into: into, Sources: []string{tt.source}, Dest: tt.dest}, tt.want)
	}
}
