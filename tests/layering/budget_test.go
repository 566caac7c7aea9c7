package layering

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostLines bounds what a package has of Go, without its tests and what is generated: one that
// grows past it is parted by what it is about.
const mostLines = 4500

// larger are the bounds of packages that are above it. They may only fall.
var larger = map[string]int{
	"runtime":          13760,
	"cmd/caisson-init": 4800,
}

// mostLinesOfCLI bounds each package of the CLI: it is parted by nouns.
const mostLinesOfCLI = 3000

func TestPackagesHaveBounds(t *testing.T) {
	counted := 0
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		lines := linesOf(t, filepath.Join("..", "..", filepath.FromSlash(name)))
		counted += lines
		most := cmp.Or(larger[name], mostLines)
		if strings.HasPrefix(name, "cmd/caisson/") {
			most = mostLinesOfCLI
		}
		if lines > most {
			t.Errorf("%s has %d lines, at most %d", name, lines, most)
		}
	}
	if counted < mostLines { // of one package
		t.Errorf("only %d lines were counted", counted)
	}
}

// linesOf counts the lines of Go in a folder that people write and programs are made of.
func linesOf(t *testing.T, dir string) (lines int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("\n// Code generated ")) && !bytes.HasPrefix(data, []byte("// Code generated ")) {
			lines += bytes.Count(data, []byte("\n"))
		}
	}
	return lines
}
