package sdk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const (
	sourceDir = "../../sdk/python"
	// systemPython has the packages of Debian that build and install ours.
	systemPython = "/usr/bin/python3"
	pythonTime   = 5 * time.Minute
)

// pythonPages are the pages with blocks of Python, and how many each has.
var pythonPages = map[string]int{
	"../../README.md": 1,
	"../../docs/how-to/connect-an-orchestrator.md": 1,
	"../../sdk/python/README.md":                   9,
}

// python is an environment with nothing but the package.
type python struct {
	program string
	dir     string // of the tests and examples, without the sources of the package
}

// command prepares a call of Python with the daemon's socket.
func (p *python) command(ctx context.Context, socket string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, append([]string{"-W", "error"}, args...)...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CAISSON_SOCKET=" + socket, "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8"}
	return cmd
}

// run runs Python, which must succeed, and returns its output.
func (p *python) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pythonTime)
	defer cancel()
	return output(t, p.command(ctx, daemon.Socket, args...))
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// installPython builds the package and installs the wheel into an empty environment.
func installPython(t *testing.T) *python {
	t.Helper()
	need.Tools(t, systemPython)
	p := &python{dir: t.TempDir()}
	source := filepath.Join(p.dir, "source")
	for _, name := range []string{"pyproject.toml", "README.md", "caisson"} {
		copyTree(t, filepath.Join(sourceDir, name), filepath.Join(source, name))
	}
	for _, name := range []string{"README.md", "tests", "examples"} {
		copyTree(t, filepath.Join(sourceDir, name), filepath.Join(p.dir, name))
	}
	output(t, exec.CommandContext(t.Context(), systemPython, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", p.dir, source))
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	environment := filepath.Join(p.dir, "environment")
	output(t, exec.CommandContext(t.Context(), systemPython, "-m", "venv", "--without-pip", environment))
	p.program = filepath.Join(environment, "bin", "python")
	output(t, exec.CommandContext(t.Context(), systemPython, "-m", "pip", "--python", p.program, "--disable-pip-version-check",
		"install", "--quiet", "--no-index", "--no-deps", only(t, filepath.Join(p.dir, "caisson-*.whl"))))
	only(t, filepath.Join(p.dir, "caisson-*.tar.gz"))
	return p
}

// copyTree copies a file, or a directory without what Python compiled.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if !info.IsDir() {
		copyFile(t, from, to)
		return
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "__pycache__" {
			copyTree(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// only returns the one path that matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// TestPython: the package, as its users install it, keeps what its README promises.
func TestPython(t *testing.T) {
	need.Tools(t, "mkfs.ext4") // for disks
	p := installPython(t)
	t.Run("typed", func(t *testing.T) {
		site := only(t, filepath.Join(filepath.Dir(filepath.Dir(p.program)), "lib", "python*", "site-packages", "caisson"))
		only(t, filepath.Join(site, "py.typed"))
	})
	t.Run("calls", func(t *testing.T) {
		p.run(t, "-m", "unittest", "tests.daemon.session", "tests.daemon.files", "tests.daemon.tasks", "tests.daemon.images", "tests.daemon.volumes", "tests.daemon.snapshots", "tests.daemon.settings")
		daemon.AwaitNoSandbox(t)
	})
	t.Run("pages", func(t *testing.T) {
		copyTree(t, sourceDir, filepath.Join(p.dir, "src")) // which a block copies
		for page, blocks := range pythonPages {
			p.run(t, "tests/readme.py", absolute(t, page), strconv.Itoa(blocks))
		}
		daemon.AwaitNoSandbox(t)
	})
	for example, want := range map[string]string{
		"agent.py":  "2 entries with 32 bytes\n",
		"fanout.py": "['0', '1', '4', '9', '16', '25']\n",
		"shell.py":  "ended with 7\n",
	} {
		t.Run(example, func(t *testing.T) {
			if out := p.run(t, filepath.Join("examples", example)); !strings.HasSuffix(out, want) {
				t.Errorf("%s\nwant at its end %q", out, want)
			}
			daemon.AwaitNoSandbox(t)
		})
	}
	t.Run("restart", func(t *testing.T) { pythonOverRestarts(t, p) })
}

// pythonOverRestarts kills the daemon with SIGKILL and starts it again each time that the
// tests ask for it.
func pythonOverRestarts(t *testing.T, p *python) {
	d := harness.StartWith(t, "")
	ask, asked := pipe(t)
	answered, answer := pipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), pythonTime)
	defer cancel()
	cmd := p.command(ctx, d.Socket, "-m", "unittest", "tests.daemon.restart")
	cmd.ExtraFiles = []*os.File{asked, answered}
	cmd.Env = append(cmd.Env, "CAISSON_TEST_ASK=3", "CAISSON_TEST_ANSWER=4")
	ended := make(chan error, 1)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- cmd.Wait()
		asked.Close() // the loop below ends
	}()
	restarts := 0
	for one := make([]byte, 1); ; restarts++ {
		if _, err := ask.Read(one); err != nil {
			break
		}
		d.Kill(t)
		d.Launch(t)
		if _, err := fmt.Fprint(answer, "."); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil || restarts < 22 {
		t.Errorf("%v after %d restarts\n%s", err, restarts, text.String())
	}
	d.AwaitNoSandbox(t)
}

// pipe returns both ends of a pipe.
func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		read.Close()
		write.Close()
	})
	return read, write
}
