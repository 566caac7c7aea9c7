package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// codexPath is the program of the package.
const codexPath = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"

func run(cmd string) codexCall { return codexCall{name: "exec_command", args: arguments{"cmd": cmd}} }

// codexSession runs Codex, unmodified, in a project of its own.
type codexSession struct {
	program, project, home string
	plug                   bool
	edit                   func(settings string) string // of environments.toml; nil: as it is installed
	trace                  string                       // a file for the programs that it starts on the host
}

func newCodexSession(t *testing.T, program string) codexSession {
	t.Helper()
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	return codexSession{program: program, project: readableDir(t), home: t.TempDir(), plug: true}
}

const codexConfig = `model_provider = "fake"
model = "gpt-5.5"
[model_providers.fake]
name = "fake"
base_url = "%s/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
[analytics]
enabled = false
[features]
plugins = false
`

// run has Codex do what a model asks for. The flags are those of the plug.
func (s codexSession) run(t *testing.T, model *codexModel, mode string, flags ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.home, "config.toml"), fmt.Appendf(nil, codexConfig, model.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), npmTimeout)
	defer cancel()
	if s.plug {
		install := daemon.Command(ctx, append([]string{"plug", "codex", "--install"}, flags...)...)
		install.Env = append(install.Env, "CODEX_HOME="+s.home)
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("install: %v\n%s", err, out)
		}
	}
	if s.edit != nil {
		file := filepath.Join(s.home, "environments.toml")
		b, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(s.edit(string(b))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, s.program, "exec", "--skip-git-repo-check", "--json", "--sandbox", mode, "do it")
	cmd.Dir = s.project
	cmd.Env = append(os.Environ(), "CODEX_HOME="+s.home, "FAKE_KEY=key-of-the-user")
	if s.trace != "" {
		cmd = traced(ctx, cmd, s.trace)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("codex: %v\n%s", err, out[max(0, len(out)-4000):])
	}
}

type codexStep struct {
	call codexCall
	want []string
}

// check runs a session and compares what the model gets.
func (s codexSession) check(t *testing.T, mode string, steps []codexStep, flags ...string) *codexModel {
	t.Helper()
	var calls []codexCall
	for _, step := range steps {
		calls = append(calls, step.call)
	}
	model := newCodexModel(t, calls...)
	s.run(t, model, mode, flags...)
	for i, step := range steps {
		got := model.result(i)
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("call %d, %v: got %q, want %q", i, step.call, got[:min(len(got), 2000)], want)
			}
		}
	}
	return model
}

func TestCodex(t *testing.T) {
	program := filepath.Join(install(t, "codex"), codexPath)
	t.Run("session", func(t *testing.T) { testCodexSession(t, program) })
	t.Run("modes", func(t *testing.T) { testCodexModes(t, program) })
	t.Run("stdio", func(t *testing.T) { testCodexStdio(t, program) })
	t.Run("websocket", func(t *testing.T) { testCodexWebsocket(t, program) })
	t.Run("without plug", func(t *testing.T) { testCodexWithoutPlug(t, program) })
}

const addPatch = `*** Begin Patch
*** Add File: new/dir/Makefile
+all:
+	echo built > out.txt
*** End Patch`

const updatePatch = `*** Begin Patch
*** Update File: new/dir/Makefile
@@
 all:
-	echo built > out.txt
+	echo built again > out.txt
*** End Patch`

// testCodexSession is a session of the real program. Every command runs in the sandbox, with
// the project at the same path, and without the keys of its user.
func testCodexSession(t *testing.T, program string) {
	s := newCodexSession(t, program)
	steps := []codexStep{
		{run(inside + "pwd"), []string{"caisson-init\n" + s.project, "exited with code 0"}},
		{codexCall{patch: addPatch}, []string{"Success"}},
		{codexCall{patch: updatePatch}, []string{"Success"}},
		{run(inside + "cd new/dir && sh -c \"$(tail -n 1 Makefile)\" && cat out.txt"), []string{"caisson-init", "built again"}},
		{run(inside + "cat <<'E'\n$a \"q\" 'b' `c`\nE\nexit 3"), []string{"code 3", "$a \"q\" 'b' `c`"}},
		{run("seq 1 300000"), []string{"\n100\n", "\n300000\n"}},
		{run(inside + "env"), []string{"caisson-init", "CODEX_CI=1", "PATH="}},
		{run("wget -q -O- http://refused.example/ || echo refused"), []string{"refused"}},
		{run("ls " + s.home), []string{"No such file"}},
		{codexCall{name: "exec_command", args: arguments{"cmd": inside + "tty; read x; echo got $x; stty size", "tty": true, "yield_time_ms": 700}}, []string{"caisson-init", "/dev/pts/", "session ID"}},
		{codexCall{name: "exec_command", args: arguments{"cmd": "sleep 1; " + inside, "yield_time_ms": 250}}, []string{"session ID"}},
		{run("false"), []string{"code 1"}},
		{run("no-such-command"), []string{"code 127"}},
		{run("(sleep 0.2; echo child) & wait; echo parent"), []string{"child\nparent\n"}},
		{run("echo out; echo err >&2"), []string{"out\n", "err\n"}}, // Codex mixes two pipes as they come
	}
	model := s.check(t, "danger-full-access", steps)
	if env := model.result(6); strings.Contains(env, "key-of-the-user") {
		t.Errorf("the key of the user is inside: %s", env)
	}
	if b, err := os.ReadFile(filepath.Join(s.project, "new/dir/out.txt")); err != nil || string(b) != "built again\n" {
		t.Errorf("the host has %q, %v", b, err)
	}
}

// testCodexModes: a mode of Codex's own sandbox is enforced, or the command is refused with
// the reason.
func testCodexModes(t *testing.T, program string) {
	for _, tt := range []struct {
		name, mode string
		git        bool
		flags      []string
		steps      []codexStep
	}{
		{"read-only", "read-only", true, nil, []codexStep{
			{run(inside + "touch x; cat old"), []string{"caisson-init", "Read-only file system", "old content"}},
			{codexCall{patch: addPatch}, []string{"rejected"}},
		}},
		{"workspace-write", "workspace-write", false, nil, []codexStep{
			{run(inside + "echo new > x; cat x"), []string{"caisson-init", "new"}},
			{codexCall{patch: addPatch}, []string{"Success"}},
		}},
		{"a repository", "workspace-write", true, nil, []codexStep{
			{run(inside + "echo new > x; cat x; echo bad > .git/config; mv .git away"), []string{"caisson-init", "new", "Read-only file system", "busy"}},
			{codexCall{patch: addPatch}, []string{"Success"}},
			{codexCall{patch: strings.ReplaceAll(addPatch, "new/dir", ".git/hooks")}, []string{"rejected"}},
		}},
		{"no network", "workspace-write", false, []string{"--allow", "allowed.example"}, []codexStep{
			{run(inside + "grep -c : /proc/net/dev"), []string{"caisson-init"}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newCodexSession(t, program)
			if err := os.WriteFile(filepath.Join(s.project, "old"), []byte("old content\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if tt.git {
				if err := os.Mkdir(filepath.Join(s.project, ".git"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			s.check(t, tt.mode, tt.steps, tt.flags...)
		})
	}
}

// testCodexWithoutPlug shows that the probe tells a command of the host.
func testCodexWithoutPlug(t *testing.T, program string) {
	s := newCodexSession(t, program)
	s.plug = false
	model := s.check(t, "danger-full-access", []codexStep{{run(inside + "echo $FAKE_KEY"), []string{"key-of-the-user"}}})
	if got := model.result(0); strings.Contains(got, "caisson-init") {
		t.Errorf("a command of the host prints %q", got)
	}
}
