package layering

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const (
	top     = "../.."
	maxLine = 100 // columns of a line of documentation
)

// generated is a page that a program writes.
const generated = "docs/reference/errors.md"

var (
	fences   = regexp.MustCompile("(?ms)^```.*?^```$")
	headings = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	mdLinks  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// pages returns the text of README.md and of every page in docs, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"README.md"}
	err := fs.WalkDir(os.DirFS(top), "docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// TestDocumentedLines: the lines of the documentation fit on a screen.
func TestDocumentedLines(t *testing.T) {
	for path, text := range pages(t) {
		if path == generated {
			continue
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > maxLine {
				t.Errorf("%s:%d: %d columns, at most %d", path, n, columns, maxLine)
			}
		}
	}
}

// TestDocumentedLinks: each relative link of the documentation leads to a file of the
// project, and each anchor to a heading.
func TestDocumentedLinks(t *testing.T) {
	texts := pages(t)
	links := 0
	for path, text := range texts {
		for _, m := range mdLinks.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if err := checkLink(texts, path, m[1]); err != nil {
				t.Errorf("%s: link %s: %v", path, m[1], err)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links found", links)
	}
}

// checkLink says why the link of the page at path leads nowhere.
func checkLink(texts map[string]string, path, link string) error {
	target, anchor, hasAnchor := strings.Cut(link, "#")
	to := path
	if target != "" {
		to = filepath.Join(filepath.Dir(path), target)
	}
	if !filepath.IsLocal(to) {
		return fmt.Errorf("%s is outside the project", to)
	}
	if _, err := os.Stat(filepath.Join(top, to)); err != nil {
		return fmt.Errorf("no such file: %s", to)
	}
	if !hasAnchor {
		return nil
	}
	if there := anchors(texts[to]); !there[anchor] {
		return fmt.Errorf("%s has no heading #%s, only %q", to, anchor, slices.Sorted(maps.Keys(there)))
	}
	return nil
}

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(text string) map[string]bool {
	there := map[string]bool{}
	for _, m := range headings.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		anchor := slug
		for n := 1; there[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", slug, n)
		}
		there[anchor] = true
	}
	return there
}

// ownPages are the pages that messages and comments name.
var ownPages = regexp.MustCompile(`\bdocs/(?:reference|how-to)?/?[a-z-]+\.md`)

// TestNamedPages: each page that the code names is there, to be installed with it.
func TestNamedPages(t *testing.T) {
	texts := pages(t)
	named := 0
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(filepath.Join(top, path))
		for line := range strings.Lines(string(code)) {
			if strings.Contains(line, "://") { // of another project
				continue
			}
			for _, page := range ownPages.FindAllString(line, -1) {
				named++
				if _, ok := texts[page]; !ok {
					t.Errorf("%s names %s, which is not there", path, page)
				}
			}
		}
		return err
	})
	if err != nil || named < 10 {
		t.Errorf("%d pages are named, %v", named, err)
	}
}
