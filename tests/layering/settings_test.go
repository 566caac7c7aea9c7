package layering

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// oneSetting is a limit that stands for all, in each of its spellings.
	oneSetting = regexp.MustCompile(`(?i)cpu[_-]?shares`)

	// handWritten are the kinds of files in which somebody would add a setting.
	handWritten = []string{".go", ".proto", ".py", ".ts", ".json", ".yaml"}

	// elsewhere are folders of what is generated, tested, downloaded or built, and the node program,
	// a module that is only a client.
	elsewhere = []string{"bin", "build", "dist", "docs", "generated", "node", "node_modules", "testdata", "tests"}

	generatedMark = regexp.MustCompile(`(?i)do not edit`)
)

// settingFiles may only get shorter: the files in which a new limit is added by hand.
var settingFiles = []string{
	"api/caisson/v1/sandbox.proto",
	"api/openapi/examples.json",
	"api/settings/table.go",
	"cgroups/resources.go",
	"config/config.go",
	"config/peers.go",
	"sdk/python/caisson/types.py",
}

// A setting is one row: the files that name one are few. Tests, documentation and what is
// generated do not count.
func TestASettingIsOneRow(t *testing.T) {
	var found []string
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || slices.Contains(elsewhere, name)):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(handWritten, filepath.Ext(name)) || strings.HasSuffix(name, "_test.go") || name == "openapi.json":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(top, path))
		if err == nil && oneSetting.Match(text) && !generatedMark.Match(text[:min(len(text), 200)]) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, settingFiles) {
		t.Errorf("files that name cpu_shares:\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(settingFiles, "\n"))
	}
}
