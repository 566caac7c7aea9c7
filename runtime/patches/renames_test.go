package patches_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Directories that were renamed in all ways that meet other changes.
func TestRenames(t *testing.T) {
	for name, script := range map[string]string{
		"out of one that goes":   "mv a/sub kept; rm -r a",
		"two in turns":           "mv a x; mv b a; mv x b",
		"over another":           "rm -r b; mv a b",
		"into its own place":     "mv a/sub x; rm -r a; mv x a",
		"with changes":           "mv a c; echo more >> c/f; rm c/sub/g; echo new > c/sub/new; rm c/link; echo file > c/link; chmod +x c/run",
		"one in one":             "mv a c; mv c/sub c/other; echo more >> c/other/g",
		"one in one replaced":    "mv a c; rm -r c/sub; mkdir c/sub; echo other > c/sub/g",
		"a file in its place":    "mv a c; echo file > a",
		"another mode":           "mv a c; chmod 700 c/sub; chmod 700 c; echo more >> c/f",
		"one that goes within":   "mv a c; rm -r c/sub",
		"below a new one":        "mkdir -p new/deep; mv a new/deep/a; mv b new/b",
		"and back":               "mv a c; mv c a; echo more >> a/f",
		"made anew":              "mv a c; mkdir a; echo other > a/f; mkdir a/sub",
		"a link to where it was": "mv a c; ln -s c a",
	} {
		t.Run(name, func(t *testing.T) {
			l := mountLayers(t, func(lower string) {
				must(t, os.MkdirAll(lower+"/a/sub", 0o755), os.Mkdir(lower+"/b", 0o755), os.Symlink("f", lower+"/a/link"))
				for _, name := range []string{"/a/f", "/a/run", "/a/sub/g", "/a/sub/h", "/b/f", "/b/only"} {
					write(t, lower+name, []byte("text of "+name+"\n"))
				}
			})
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = l.merged
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := l.patch(t, root)
			if err := l.apply(t, p.Text); err != nil || len(p.Left) > 0 {
				t.Fatalf("%v %v\n%s", err, p.Left, p.Text)
			}
			if got, want := tree(t, l.plain), tree(t, l.merged); !slices.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q\n%s", got, want, p.Text)
			}
		})
	}
}
