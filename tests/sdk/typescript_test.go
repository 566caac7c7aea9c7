package sdk

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const (
	typescriptDir  = "../../sdk/typescript"
	typescriptName = "@caisson-run/caisson"
	nodeTimeout    = 5 * time.Minute
)

// TestTypeScript packs the package, installs it into an empty directory, and uses it there
// as its users do.
func TestTypeScript(t *testing.T) {
	need.Tools(t, "node", "npm", "mkfs.ext4")
	app := installTypeScript(t)
	t.Run("units", func(t *testing.T) {
		t.Parallel()
		runIn(t, typescriptDir, "sh", "-c", "node --test test/*.test.mjs")
	})
	t.Run("import", func(t *testing.T) {
		t.Parallel()
		wantLines(t, node(t, daemon, app, "import.mjs"), "esm 0")
	})
	t.Run("require", func(t *testing.T) {
		t.Parallel()
		wantLines(t, node(t, daemon, app, "require.cjs"), "cjs 0")
	})
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		wantLines(t, node(t, daemon, app, "session.mjs"), "ok")
	})
	t.Run("settings", func(t *testing.T) {
		t.Parallel()
		wantLines(t, node(t, daemon, app, "settings.mjs"), "ok")
	})
	t.Run("readme", func(t *testing.T) {
		t.Parallel()
		testTypeScriptReadme(t, app)
	})
	for name, want := range typescriptExamples {
		t.Run("example "+name, func(t *testing.T) {
			t.Parallel()
			wantLines(t, node(t, daemon, app, name), want...)
		})
	}
	t.Run("killed daemon", func(t *testing.T) { testTypeScriptKill(t, app) })
}

// typescriptExamples are the examples and what they print.
var typescriptExamples = map[string][]string{
	"agent.mjs": {
		"same sandbox: true, note: test", "found by label: true",
		"may reach example.com: false, it needs example.com:443",
	},
	"stream.mjs": {"1000 lines, exit code 0", "shell says /tmp", "shell ended with 7", "stopped: AbortError"},
	"files.mjs": {
		"copied in: 1", "create /tmp/work/sorted", "sorted: a b c ",
		"absent: true, check the path inside the sandbox; its parent directory must exist too",
	},
}

var packing sync.Mutex // npm writes into the package's own directory

// packTypeScript packs the package and returns the archive.
func packTypeScript(t *testing.T) string {
	t.Helper()
	packing.Lock()
	defer packing.Unlock()
	if _, err := os.Stat(filepath.Join(typescriptDir, "node_modules/typescript")); err != nil {
		runIn(t, typescriptDir, "npm", "ci", "--no-audit", "--no-fund")
	}
	dir := t.TempDir()
	runIn(t, typescriptDir, "npm", "pack", "--silent", "--pack-destination", dir)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("npm pack made %q: %v", archives, err)
	}
	return archives[0]
}

// installTypeScript installs the packed package into an empty directory, with the programs
// of the tests beside it.
func installTypeScript(t *testing.T) string {
	t.Helper()
	archive, app := packTypeScript(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, app, "npm", "install", "--offline", "--no-audit", "--no-fund", archive)
	for _, dir := range []string{"testdata/typescript", filepath.Join(typescriptDir, "examples")} {
		if err := os.CopyFS(app, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	return app
}

// TestTypeScriptPackage: the package has no dependency and holds only what is built.
func TestTypeScriptPackage(t *testing.T) {
	need.Tools(t, "node")
	const script = `import p from './package.json' with {type: 'json'}; console.log(Object.keys(p.dependencies ?? {}).length)`
	wantLines(t, node(t, nil, typescriptDir, "--input-type=module", "--no-warnings", "-e", script), "0")
	lock, err := os.ReadFile(filepath.Join(typescriptDir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("the lock file names a registry: sdk/typescript/.npmrc keeps it out")
	}
}

var (
	readmeBlocks = regexp.MustCompile("(?ms)^```ts\n(.*?)^```$")
	readmePrints = regexp.MustCompile(`(?m)^ *console\.log\(.*\) // (.*)$`)
)

// testTypeScriptReadme compiles the blocks of the README with the package's types, runs
// them, and compares what they print with their comments.
func testTypeScriptReadme(t *testing.T, app string) {
	text, err := os.ReadFile(filepath.Join(typescriptDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := readmeBlocks.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("the README has no blocks of TypeScript")
	}
	modules, err := filepath.Abs(filepath.Join(typescriptDir, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	tsc := []string{
		filepath.Join(modules, "typescript/bin/tsc"), "--strict", "--target", "es2022", "--lib", "es2022,esnext.disposable",
		"--module", "nodenext", "--typeRoots", filepath.Join(modules, "@types"), "--types", "node",
	}
	for i, block := range blocks {
		name := fmt.Sprintf("readme%d.mts", i)
		if err := os.WriteFile(filepath.Join(app, name), []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		tsc = append(tsc, name)
	}
	node(t, nil, app, tsc...)
	for i, block := range blocks {
		var want []string
		for _, m := range readmePrints.FindAllStringSubmatch(block[1], -1) {
			want = append(want, m[1])
		}
		out := node(t, daemon, app, fmt.Sprintf("readme%d.mjs", i))
		for _, line := range want {
			if !strings.Contains("\n"+out, "\n"+line+"\n") {
				t.Errorf("block %d of the README does not print %q:\n%s", i+1, line, out)
			}
		}
	}
}

// testTypeScriptKill kills the daemon whenever the program asks for it. The program holds
// its streams back meanwhile, so each kill comes in the middle.
func testTypeScriptKill(t *testing.T, app string) {
	d := harness.StartWith(t, "")
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "kill.mjs")
	cmd.Dir, cmd.Env = app, nodeEnv(d)
	killAsAsked(t, d, cmd, 16)
}

// killAsAsked runs a program that says when the daemon is to be killed and launched, and ends
// with "ok".
func killAsAsked(t *testing.T, d *harness.Daemon, cmd *exec.Cmd, least int) {
	t.Helper()
	cmd.Stderr = os.Stderr
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kills, last := 0, ""
	for lines := bufio.NewScanner(out); lines.Scan(); last = lines.Text() {
		t.Log(lines.Text())
		switch lines.Text() {
		case "kill":
			kills++
			d.Kill(t)
		case "launch":
			d.Launch(t)
		default:
			continue
		}
		if _, err := io.WriteString(answers, "done\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil || last != "ok" || kills < least {
		t.Errorf("after %d kills the program ended with %v and %q", kills, err, last)
	}
}

// node runs node in a directory and returns what it prints.
func node(t *testing.T, d *harness.Daemon, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir, cmd.Env = dir, nodeEnv(d)
	return nodeOutput(t, cmd)
}

// nodeEnv is the environment of the tests, if d is not nil with its socket.
func nodeEnv(d *harness.Daemon) []string {
	if d == nil {
		return os.Environ()
	}
	return append(os.Environ(), "CAISSON_SOCKET="+d.Socket)
}

// runIn runs a program in a directory.
func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	nodeOutput(t, cmd)
}

// nodeOutput returns what a program that succeeds prints.
func nodeOutput(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s\n%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

func wantLines(t *testing.T, out string, want ...string) {
	t.Helper()
	if out != strings.Join(want, "\n")+"\n" {
		t.Errorf("it printed\n%s\nwant\n%s", out, strings.Join(want, "\n"))
	}
}
