package agents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// claudePath is the program of the package.
const claudePath = "node_modules/@anthropic-ai/claude-code-linux-x64"

func bashCall(command string) toolCall { return toolCall{"Bash", arguments{"command": command}} }

// claudeSession runs Claude Code, unmodified, in a project of its own. With plug its shell
// commands run in a sandbox.
type claudeSession struct {
	project, home string
	model         *claudeModel
	plug          bool
	flags         []string // of plug
	trace         string   // a file for the programs that it starts on the host
}

func (s claudeSession) run(t *testing.T, program string, args ...string) {
	t.Helper()
	args = append([]string{"-p", "do it", "--output-format", "stream-json", "--verbose", "--permission-mode", "dontAsk"}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(program, "claude"), args...)
	if s.plug {
		cmd = daemon.Command(ctx, append(append([]string{"plug", "claude"}, s.flags...), append([]string{"--"}, args...)...)...)
	}
	cmd.Dir = s.project
	cmd.Env = append(append(os.Environ(), "CAISSON_SOCKET="+daemon.Socket), cmd.Env...)
	cmd.Env = append(cmd.Env, "PATH="+program+":"+os.Getenv("PATH"), "HOME="+s.home, "ANTHROPIC_BASE_URL="+s.model.URL, "ANTHROPIC_API_KEY=key-of-the-user",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	if s.trace != "" {
		cmd = traced(ctx, cmd, s.trace)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("claude: %v\n%s", err, out[max(0, len(out)-4000):])
	}
}

func newClaudeSession(t *testing.T, model *claudeModel) claudeSession {
	t.Helper()
	t.Cleanup(func() { removeSandboxes(t, "claude-") })
	return claudeSession{project: readableDir(t), home: t.TempDir(), model: model, plug: true}
}

// readableDir is a directory of the test that the user of a sandbox reaches.
func readableDir(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&0o5 != 0o5 {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}

// removeSandboxes removes those of the shared daemon whose name begins so.
func removeSandboxes(t *testing.T, prefix string) {
	t.Helper()
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(daemon.Try("ls", "--json").Stdout), &list); err != nil {
		t.Error(err)
	}
	for _, box := range list {
		if strings.HasPrefix(box.Name, prefix) {
			daemon.Try("rm", "--force", box.Name)
		}
	}
}

// inside prints only in a sandbox.
const inside = "cat /proc/1/comm; "

// TestClaudeCode is a session of the real program. Every command runs in the sandbox, with
// the project at the same path, and without the keys of its user.
func TestClaudeCode(t *testing.T) {
	program := filepath.Join(install(t, "claude"), claudePath)
	steps := []struct {
		call toolCall
		want []string
	}{
		{bashCall(inside + "pwd"), []string{"caisson-init\n", "PROJECT"}},
		{bashCall("printf 'all:\\n\\techo built > out.txt\\n' > Makefile; mkdir -p sub"), nil},
		{bashCall(inside + "cat Makefile; echo built > out.txt; cat out.txt"), []string{"caisson-init", "built"}},
		{bashCall(inside + "cat <<'E'\n$a \"q\" 'b' `c`\nE\nexit 3"), []string{"Exit code 3", "$a \"q\" 'b' `c`"}},
		{bashCall("cd sub && export X=1"), nil},
		{bashCall(inside + "pwd; echo \"x$X\""), []string{"/sub\nx"}},
		{bashCall("cd .."), nil},
		{bashCall("seq 1 20000"), []string{"Output too large", "\n100\n"}},
		{bashCall(inside + "env"), []string{"caisson-init", "CLAUDECODE=1"}},
		{toolCall{"Bash", arguments{"command": inside + "sleep 1; cat /proc/1/comm > background.txt", "run_in_background": true}}, []string{"running in background"}},
		{bashCall("wget -q -O- http://refused.example/ || echo refused"), []string{"refused"}},
		{bashCall("ls /root/.ssh HOME"), []string{"No such file"}},
		{bashCall("kill -9 1; echo alive"), []string{"alive"}},
		{bashCall("for i in 1 2 3; do echo $i >&2; done"), []string{"1\n2\n3"}},
		{bashCall("printf '\\303\\244\\n'; printf 'a\\tb'"), []string{"ä\na\tb"}},
		{bashCall("false"), []string{"Exit code 1"}},
		{bashCall("no-such-command"), []string{"Exit code 127"}},
		{bashCall("(sleep 0.2; echo child) & wait; echo parent"), []string{"child\nparent"}},
	}
	var calls []toolCall
	for _, s := range steps {
		calls = append(calls, s.call)
	}
	s := newClaudeSession(t, nil)
	for i := range calls {
		if command, ok := calls[i].input["command"].(string); ok {
			calls[i].input["command"] = strings.ReplaceAll(command, "HOME", s.home)
		}
	}
	s.model = newClaudeModel(t, calls...)
	s.run(t, program, "--allowedTools", "Bash")
	for i, step := range steps {
		got := s.model.result(i)
		for _, want := range step.want {
			want = strings.ReplaceAll(want, "PROJECT", s.project)
			if !strings.Contains(got, want) {
				t.Errorf("call %d, %v: got %q, want %q", i, step.call.input, got, want)
			}
		}
	}
	if env := s.model.result(8); strings.Contains(env, "key-of-the-user") {
		t.Errorf("the key of the user is inside: %s", env)
	}
	for name, want := range map[string]string{"out.txt": "built\n", "background.txt": "caisson-init\n"} {
		if b, err := os.ReadFile(filepath.Join(s.project, name)); err != nil || string(b) != want {
			t.Errorf("%s of the host: %q, %v", name, b, err)
		}
	}
	left, _ := filepath.Glob("/tmp/claude-*-cwd") // a good pattern
	if len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// TestClaudeCodeTimeout: a command whose time is over ends with all that it started.
func TestClaudeCodeTimeout(t *testing.T) {
	program := filepath.Join(install(t, "claude"), claudePath)
	s := newClaudeSession(t, newClaudeModel(t,
		toolCall{"Bash", arguments{"command": "echo begin; setsid sleep 1001 & sleep 1002; true", "timeout": 1000}},
		bashCall("sleep 2; ps | grep '[s]leep 100' || echo none left")))
	t.Setenv("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1") // else it goes on in the background
	s.run(t, program, "--allowedTools", "Bash")
	if got := s.model.result(0); !strings.Contains(got, "begin") || !strings.Contains(got, "143") {
		t.Errorf("the command that was killed: %q", got)
	}
	if got := s.model.result(1); !strings.Contains(got, "none left") {
		t.Errorf("afterwards: %q", got)
	}
}

// TestClaudeCodeWithoutPlug shows that the probe tells a command of the host.
func TestClaudeCodeWithoutPlug(t *testing.T) {
	program := filepath.Join(install(t, "claude"), claudePath)
	s := newClaudeSession(t, newClaudeModel(t, bashCall(inside+"echo $ANTHROPIC_API_KEY")))
	s.plug = false
	s.run(t, program, "--allowedTools", "Bash")
	if got := s.model.result(0); strings.Contains(got, "caisson-init") || !strings.Contains(got, "key-of-the-user") {
		t.Errorf("a command of the host prints %q", got)
	}
}

// TestClaudeShellKilled: a script ends with the program that runs it.
func TestClaudeShellKilled(t *testing.T) {
	d := harness.StartWith(t, "sandboxes:\n  attach_grace: 1s\n")
	d.Run(t, "create", "--name", "box")
	for _, kill := range []func(*os.Process) error{
		func(p *os.Process) error { return p.Signal(os.Interrupt) },
		(*os.Process).Kill,
	} {
		cmd := d.Command(t.Context(), "--claude-shell", "sleep 1001 & sleep 1002")
		cmd.Env = append(cmd.Env, "CAISSON_PLUG_SANDBOX=box")
		cmd.Dir = "/"
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sleeps := func() bool { return strings.Contains(d.Run(t, "exec", "box", "--", "ps").Stdout, "sleep 100") }
		eventually(t, "sleep in the sandbox", sleeps)
		if err := kill(cmd.Process); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_ = cmd.Wait() // it was killed
		eventually(t, "end of the script", func() bool { return !sleeps() })
		t.Logf("ended within %v", time.Since(begin))
	}
}
