package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/verbs"
	"github.com/caisson-run/caisson/server/servertest"
)

// A small program executes the whole one for what it lacks, with the same words, before it does anything.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	self, more := filepath.Join(dir, "bin", "caisson"), filepath.Join(dir, "libexec", "caisson", "more")
	for _, d := range []string{filepath.Dir(self), filepath.Dir(more)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &servertest.Fake{}
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	call := func(line string) (executed []string, code int, stderr string) {
		var out, errOut bytes.Buffer
		a := cli.NewApp(cli.Program{Whole: "more", Version: "1.1", Groups: verbs.Groups()}, strings.NewReader(""), &out, &errOut)
		a.Executable = func() (string, error) { return self, nil }
		a.Exec = func(path string, argv, _ []string) error {
			executed = append([]string{path}, argv...)
			return nil
		}
		code = a.Run(t.Context(), strings.Fields(line))
		return executed, code, errOut.String()
	}
	if _, code, stderr := call("mcp"); code != cli.ExitRuntime || !strings.Contains(stderr, "more is neither beside "+self) {
		t.Errorf("without the whole program: %d, %s", code, stderr)
	}
	if err := os.WriteFile(more, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for line, whole := range map[string]bool{
		"mcp --sandbox a": true, "plug claude": true, "": true, "--help": true, "completion bash": true, "exce": true, "__complete r": true,
		"ls --format {{.name}}": true, "ls -o yaml": true, "ls -oname": true, "ls -a -o=yaml": true,
		"ls": false, "ls -o json": false, "ls -o jsno": false, "run --help": false, "create --name yaml": false, "version": false,
	} {
		executed, _, stderr := call(line)
		if want := slices.Concat([]string{more, self}, strings.Fields(line)); whole && !slices.Equal(executed, want) || !whole && executed != nil {
			t.Errorf("%q: executed %q: %s", line, executed, stderr)
		}
	}
	current := filepath.Join(filepath.Dir(more), "1.1", "more") // as a package has it
	if err := os.MkdirAll(filepath.Dir(current), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(current, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if executed, _, stderr := call("mcp"); len(executed) == 0 || executed[0] != current {
		t.Errorf("executed %q, want that of this version: %s", executed, stderr)
	}
}
