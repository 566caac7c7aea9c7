package page_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVendored: the libraries are those of vendor.txt, byte for byte, and their licenses
// are there. scripts/vendor.sh fetches them again.
func TestVendored(t *testing.T) {
	list, err := os.ReadFile("vendor.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line) // file, package, path, license, sum
		if len(f) != 5 {
			t.Fatalf("vendor.txt: %q has %d fields", line, len(f))
		}
		data, err := os.ReadFile(filepath.Join("assets/vendor", f[0]))
		if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != f[4] {
			t.Errorf("%s has the sum %x, not the listed one (%v)", f[0], sum, err)
		}
		name := f[1][:strings.LastIndex(f[1], "@")]
		if _, err := os.Stat(filepath.Join("licenses", filepath.Base(name))); err != nil {
			t.Errorf("the license of %s: %v", f[1], err)
		}
		listed = append(listed, f[0])
	}
	there, err := os.ReadDir("assets/vendor")
	if err != nil || len(there) != len(listed) {
		t.Fatalf("%d files are vendored, %d are listed (%v)", len(there), len(listed), err)
	}
	for _, f := range there {
		if !slices.Contains(listed, f.Name()) {
			t.Errorf("%s is in no line of vendor.txt", f.Name())
		}
	}
}

// inline is what the content policy refuses in HTML, and what makes code of text.
var inline = regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+="|javascript:|\beval\(|new Function|innerHTML|dangerouslySetInnerHTML|document\.write|document\.cookie|https?://`)

// allowed are the addresses of names, which nobody fetches.
var allowed = regexp.MustCompile(`http://www\.w3\.org/[^"]*`)

// TestAssets: our own files hold no inline code, make no code of text, and name no other
// host.
func TestAssets(t *testing.T) {
	files := 0
	err := fs.WalkDir(os.DirFS("assets"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path, "vendor/") {
			return err
		}
		files++
		data, err := os.ReadFile(filepath.Join("assets", path))
		if found := inline.FindString(allowed.ReplaceAllString(string(data), "")); found != "" {
			t.Errorf("%s holds %q", path, found)
		}
		return err
	})
	if err != nil || files < 8 {
		t.Fatalf("%d files, %v", files, err)
	}
}
