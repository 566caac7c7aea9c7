package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// manyCalls is how many commands a session runs whose programs are traced.
const manyCalls = 20

// marked is a command that starts a program of its own with a mark.
func marked(i int) string { return fmt.Sprintf("/bin/echo mark-%d", i) }

// markedExec is that program being started, as strace prints it.
var markedExec = regexp.MustCompile(`execve(?:at)?\([^\[]*\["/bin/echo", "mark-\d+"\]`)

// anyExec is any program being started.
var anyExec = regexp.MustCompile(`execve\("([^"]*)", `)

// traced returns a command that runs cmd, and writes to a file which programs it and all
// its descendants start. A daemon is none of them, and so neither is a sandbox.
func traced(ctx context.Context, cmd *exec.Cmd, file string) *exec.Cmd {
	args := []string{"-f", "-qq", "--seccomp-bpf", "-e", "trace=execve,execveat", "-s", "100", "-o", file, "--", cmd.Path}
	c := exec.CommandContext(ctx, "strace", append(args, cmd.Args[1:]...)...)
	c.Env, c.Dir = cmd.Env, cmd.Dir
	return c
}

// hostExecs returns how many marked programs were started, and all programs.
func hostExecs(t *testing.T, file string) (marks int, programs []string) {
	t.Helper()
	trace, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range anyExec.FindAllSubmatch(trace, -1) {
		programs = append(programs, filepath.Base(string(m[1])))
	}
	slices.Sort(programs)
	return len(markedExec.FindAll(trace, -1)), slices.Compact(programs)
}

// TestNoCommandOutside traces the programs of whole sessions on the host: none of the
// model's commands is among them. Without the plug, the same trace has all of them.
func TestNoCommandOutside(t *testing.T) {
	need.Tools(t, "strace")
	t.Run("claude", testClaudeOutside)
	t.Run("codex", testCodexOutside)
}

func testClaudeOutside(t *testing.T) {
	program := filepath.Join(install(t, "claude"), claudePath)
	for _, way := range need.Turn(t, []string{"host", "plug", "mcp"}) {
		t.Run(way, func(t *testing.T) {
			tool := "Bash"
			if way == "mcp" {
				tool = "mcp__caisson__bash"
				t.Cleanup(func() { daemon.Try("rm", "--force", "traced") })
			}
			var calls []toolCall
			for i := range manyCalls {
				calls = append(calls, toolCall{tool, arguments{"command": marked(i)}})
			}
			s := newClaudeSession(t, newClaudeModel(t, calls...))
			s.plug, s.trace = way == "plug", filepath.Join(t.TempDir(), "trace")
			args := []string{"--allowedTools", tool}
			if way == "mcp" {
				config := daemon.Run(t, "mcp", "--sandbox", "traced", "--ensure", "--print-config", "claude").Stdout
				args = append(args, "--disallowedTools", "Bash", "--mcp-config", config)
			}
			s.run(t, program, args...)
			checkOutside(t, s.trace, way == "host", s.model.result)
		})
	}
}

func testCodexOutside(t *testing.T) {
	program := filepath.Join(install(t, "codex"), codexPath)
	for _, way := range need.Turn(t, []string{"host", "plug", "websocket"}) {
		t.Run(way, func(t *testing.T) {
			var steps []codexStep
			for i := range manyCalls {
				steps = append(steps, codexStep{call: run(marked(i))})
			}
			s := newCodexSession(t, program)
			s.plug, s.trace = way != "host", filepath.Join(t.TempDir(), "trace")
			if way == "websocket" {
				_, url := codexListen(t, daemon, s.project)
				s.edit = func(string) string { return codexSocketSettings(url) }
			}
			model := s.check(t, "danger-full-access", steps)
			checkOutside(t, s.trace, way == "host", model.result)
		})
	}
}

// checkOutside: all commands ran, and on the host all of them or none.
func checkOutside(t *testing.T, trace string, host bool, result func(int) string) {
	t.Helper()
	for i := range manyCalls {
		if got := result(i); !regexp.MustCompile(fmt.Sprintf(`\bmark-%d\b`, i)).MatchString(got) {
			t.Errorf("command %d returned %q", i, got)
		}
	}
	want := 0
	if host {
		want = manyCalls
	}
	marks, programs := hostExecs(t, trace)
	if marks != want {
		t.Errorf("%d commands of the model ran on the host, want %d", marks, want)
	}
	if len(programs) == 0 {
		t.Error("the trace has no program at all")
	}
	t.Logf("programs of the host: %q", programs)
}
