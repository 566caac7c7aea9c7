package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// bound is a client of a server for one sandbox, which the test removes.
func bound(t *testing.T, d *harness.Daemon, name string, args ...string) client {
	t.Helper()
	t.Cleanup(func() { d.Try("rm", "--force", name) })
	return connect(t, d, append([]string{"--sandbox", name, "--ensure"}, args...)...)
}

//caisson:smoke
func TestBash(t *testing.T) {
	c := bound(t, daemon, "bash")
	for _, tt := range []struct{ script, stdout string }{
		{"echo hi", "hi\n"},
		{"cat <<'E'\n$x \"q\" 'y' `z` \\n\nE\n", "$x \"q\" 'y' `z` \\n\n"},
		{"for i in 1 2; do\n  printf '%s|' \"$i\"\ndone | tr 1 a", "a|2|"},
		{"printf 'no end'", "no end"},
		{"cat", ""}, // its input is empty
		{"echo out > /dev/stdout; cat /dev/stdin", "out\n"},
	} {
		if o := c.bash(t, tt.script); o.Stdout != tt.stdout || o.Status != "exited" || *o.ExitCode != 0 {
			t.Errorf("%q printed %+v", tt.script, o)
		}
	}
	if o := c.bash(t, "echo err >&2; exit 3"); *o.ExitCode != 3 || o.Stderr != "err\n" {
		t.Errorf("got %+v", o)
	}
	c.bash(t, "cd /tmp; export A='b c'", arguments{"session": "s"})
	if o := c.bash(t, `pwd; echo "$A"`, arguments{"session": "s"}); o.Stdout != "/tmp\nb c\n" {
		t.Errorf("a session kept %q", o.Stdout)
	}
	if o := c.bash(t, `pwd; echo "$A$B"`, arguments{"workdir": "/var", "env": arguments{"B": "2"}}); o.Stdout != "/var\n2\n" {
		t.Errorf("without a session: %q", o.Stdout)
	}
	c.fails(t, "time was over", "bash", arguments{"command": "sleep 60", "timeout_ms": 200})
}

// TestMuchOutput: the beginning and the end are shown, and a file of the sandbox has all.
func TestMuchOutput(t *testing.T) {
	c := bound(t, daemon, "much")
	o := c.bash(t, "seq 300000", arguments{"max_output_bytes": 2000})
	if !strings.HasPrefix(o.Stdout, "1\n2\n") || !strings.HasSuffix(o.Stdout, "\n300000\n") || len(o.Stdout) > 2200 || !o.Truncated || o.Bytes != 1988895 {
		t.Fatalf("%d bytes of %d, truncated %v: %q", len(o.Stdout), o.Bytes, o.Truncated, o.Stdout)
	}
	if sum := c.bash(t, "seq 300000 | cmp - "+o.OutputPath); *sum.ExitCode != 0 {
		t.Errorf("the file differs: %+v", sum)
	}
	const letters = 20000
	o = c.bash(t, fmt.Sprintf("yes ä | head -n %d | tr -d '\\n'", letters), arguments{"max_output_bytes": 1001})
	if strings.ContainsRune(o.Stdout, '�') {
		t.Error("a character was cut in two")
	}
}

func TestBackground(t *testing.T) {
	c := bound(t, daemon, "background")
	slow := c.bash(t, "echo a; sleep 1; echo b", arguments{"yield_ms": 200})
	if slow.Status != "running" || slow.Stdout != "a\n" {
		t.Fatalf("got %+v", slow)
	}
	if o := c.ok(t, "bash_output", arguments{"id": slow.ID, "yield_ms": 20000}); o.Stdout != "b\n" || o.Status != "exited" {
		t.Errorf("got %+v", o)
	}
	c.fails(t, "there is no command", "bash_output", arguments{"id": slow.ID}) // its end was told
	cat := c.bash(t, "cat", arguments{"background": true, "interactive": true})
	if o := c.ok(t, "bash_output", arguments{"id": cat.ID, "stdin": "hello\n", "yield_ms": 500}); o.Stdout != "hello\n" {
		t.Errorf("got %+v", o)
	}
	if o := c.ok(t, "bash_output", arguments{"id": cat.ID, "close_stdin": true, "yield_ms": 20000}); o.Status != "exited" {
		t.Errorf("got %+v", o)
	}
	tree := c.bash(t, "sleep 1001 & sleep 1002 & wait", arguments{"background": true})
	if o := c.ok(t, "bash_kill", arguments{"id": tree.ID}); o.Status != "killed" {
		t.Errorf("got %+v", o)
	}
	noSleep(t, c)
}

// noSleep fails where a sleep of the sandbox goes on.
func noSleep(t *testing.T, c client) {
	t.Helper()
	if o := c.bash(t, "ps | grep '[s]leep 100'"); o.Stdout != "" {
		t.Errorf("left running:\n%s", o.Stdout)
	}
}

// TestCancelledCall: a call that its client cancels leaves nothing running. That the probe
// sees such a process is shown first.
func TestCancelledCall(t *testing.T) {
	c := bound(t, daemon, "cancelled")
	left := c.bash(t, "sleep 1003 & sleep 1004", arguments{"background": true})
	if o := c.bash(t, "ps | grep -c '[s]leep 100'"); o.Stdout == "0\n" {
		t.Fatal("the probe sees no sleep")
	}
	c.ok(t, "bash_kill", arguments{"id": left.ID})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "bash", Arguments: arguments{"command": "sleep 1001 & sleep 1002"}}); err == nil {
		t.Error("the call was not cancelled")
	}
	eventually(t, "end of the commands", func() bool { return c.bash(t, "ps | grep '[s]leep 100'").Stdout == "" })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no %s", what)
		}
	}
}

// TestKilledServer: with the server, what its client started ends; the sandbox stays.
func TestKilledServer(t *testing.T) {
	d := harness.StartWith(t, "sandboxes:\n  attach_grace: 1s\n")
	c := bound(t, d, "box")
	c.bash(t, "sleep 1001 & sleep 1002", arguments{"background": true})
	if err := c.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the commands", func() bool { return !strings.Contains(d.Run(t, "exec", "box", "--", "ps").Stdout, "sleep 100") })
}

// TestRestartedDaemon: a command goes on over a daemon that is killed, and so does its call.
func TestRestartedDaemon(t *testing.T) {
	d := harness.Start(t)
	c := bound(t, d, "box")
	slow := c.bash(t, "for i in $(seq 40); do echo $i; sleep 0.1; done", arguments{"yield_ms": 300})
	d.Kill(t)
	d.Launch(t)
	got := slow.Stdout
	eventually(t, "end of the command", func() bool {
		o := c.ok(t, "bash_output", arguments{"id": slow.ID, "yield_ms": 5000})
		got += o.Stdout
		return o.Status == "exited"
	})
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintln(&want, i+1)
	}
	if got != want.String() {
		t.Errorf("got %q", got)
	}
}

// TestReadLines: a file that is read on where each answer ends is whole, also with lines
// that are longer than an answer, and without an end of the last.
func TestReadLines(t *testing.T) {
	c := bound(t, daemon, "lines")
	c.bash(t, `cd /tmp; seq 1 60000 > many; seq 1 9 | tr '\n' 'x' > one; (seq 1 7; head -c 199990 /dev/zero | tr '\0' a; echo; seq 1 3) > wide
		(head -c 300000 /dev/zero | tr '\0' a; echo; echo end) > huge`)
	for _, name := range []string{"many", "one", "wide"} {
		want := c.bash(t, "sha256sum < /tmp/"+name).Stdout
		for _, limit := range []int{0, 20000} {
			digest := sha256.New()
			for next, n := 1, 0; next > 0 && n < 10; n++ {
				r, _ := c.call(t, "read_file", arguments{"path": "/tmp/" + name, "offset": next, "limit": limit})
				var part struct {
					Content string
					Next    int `json:"next_line"`
				}
				decode(t, r, &part)
				_, _ = io.WriteString(digest, part.Content) // never fails
				next = part.Next
			}
			if got := hex.EncodeToString(digest.Sum(nil)) + "  -\n"; got != want {
				t.Errorf("%s by %d lines: %s, want %s", name, limit, got, want)
			}
		}
	}
	if _, text := c.call(t, "read_file", arguments{"path": "/tmp/huge"}); len(text) < 200_000 || !strings.HasSuffix(text, "a[the file has more; go on with offset 2]") {
		t.Errorf("a line that is too long: %d bytes, %q", len(text), text[len(text)-50:])
	}
	if _, text := c.call(t, "read_file", arguments{"path": "/tmp/huge", "offset": 2}); text != "end\n" {
		t.Errorf("behind it: %.100q", text)
	}
	c.fails(t, "has 1 lines", "read_file", arguments{"path": "/tmp/one", "offset": 2})
}

func TestFileTools(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := bound(t, daemon, "files", "--workspace", dir)
	c.ok(t, "write_file", arguments{"path": "d/x.txt", "content": "one\ntwo\nthree\n"})
	for _, tt := range []struct {
		args arguments
		want string
	}{
		{arguments{}, "one\ntwo\nthree\n"},
		{arguments{"offset": 2, "limit": 1}, "two\n[the file has more; go on with offset 3]"},
		{arguments{"offset": 3}, "three\n"},
	} {
		tt.args["path"] = "d/x.txt"
		if _, text := c.call(t, "read_file", tt.args); text != tt.want {
			t.Errorf("%v: %q", tt.args, text)
		}
	}
	c.fails(t, "has 3 lines", "read_file", arguments{"path": "d/x.txt", "offset": 9})
	c.fails(t, "SBX-212", "read_file", arguments{"path": "none"})
	c.fails(t, "not a text file", "read_file", arguments{"path": "/bin/busybox"})
	c.ok(t, "edit_file", arguments{"path": "d/x.txt", "old": "two", "new": "2"})
	if b, err := os.ReadFile(filepath.Join(dir, "d/x.txt")); err != nil || string(b) != "one\n2\nthree\n" {
		t.Errorf("the host has %q, %v", b, err)
	}
	c.fails(t, "3 times", "edit_file", arguments{"path": "d/x.txt", "old": "e", "new": "E"})
	c.fails(t, "is not in", "edit_file", arguments{"path": "d/x.txt", "old": "four", "new": "4"})
	if _, text := c.call(t, "list_files", arguments{"depth": 2}); !strings.Contains(text, "d/x.txt") {
		t.Errorf("a listing: %q", text)
	}
	if _, text := c.call(t, "search_files", arguments{"pattern": "^[o2]"}); text != "/workspace/d/x.txt:1:one\n/workspace/d/x.txt:2:2\n" {
		t.Errorf("a search: %q", text)
	}
	c.fails(t, "pattern", "search_files", arguments{"pattern": "["})
	c.fails(t, "SBX-104", "workspace_diff", arguments{}) // it is written through
	// A link of the workspace leads nowhere but inside.
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, text := c.call(t, "read_file", arguments{"path": "link"}); strings.Contains(text, "root:") {
		t.Errorf("read the host's file: %q", text)
	}
}

// TestSandboxTools: without one sandbox, the client makes and names them.
func TestSandboxTools(t *testing.T) {
	c := connect(t, daemon, "--memory", "256M")
	c.fails(t, "sandbox is missing", "bash", arguments{"command": "true"})
	c.ok(t, "sandbox_create", arguments{"name": "made"})
	t.Cleanup(func() { daemon.Try("rm", "--force", "made") })
	c.fails(t, "SBX-106", "sandbox_create", arguments{"name": "made"})
	if o := c.bash(t, "echo $((40+2))", arguments{"sandbox": "made"}); o.Stdout != "42\n" {
		t.Errorf("got %+v", o)
	}
	if _, text := c.call(t, "sandbox_list", nil); !strings.Contains(text, `"made"`) {
		t.Errorf("the list: %s", text)
	}
	c.ok(t, "sandbox_delete", arguments{"sandbox": "made"})
	c.fails(t, "SBX-107", "bash", arguments{"command": "true", "sandbox": "made"})

	daemon.Run(t, "create", "--name", "one")
	t.Cleanup(func() { daemon.Try("rm", "--force", "one") })
	one := connect(t, daemon, "--sandbox", "one")
	one.fails(t, `works in the sandbox "one" only`, "bash", arguments{"command": "true", "sandbox": "made"})
	tools, err := one.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		if strings.HasPrefix(tool.Name, "sandbox_") {
			t.Errorf("%s is offered by a server for one sandbox", tool.Name)
		}
	}
}

// TestRefusedDestination: the result names it, with the rule that would allow it.
func TestRefusedDestination(t *testing.T) {
	c := bound(t, daemon, "refused", "--allow", "allowed.example")
	o := c.bash(t, "wget -q -O- http://bar.example/")
	if notes := strings.Join(o.Notes, "\n"); !strings.Contains(notes, "refused bar.example") || !strings.Contains(notes, "--allow bar.example") {
		t.Errorf("notes: %q", notes)
	}
}

// TestMCPArguments: what is wrong is refused before anything is started.
func TestMCPArguments(t *testing.T) {
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(open, []byte("a-token-that-all-may-read\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--ensure"}, {"--sandbox", "a", "--memory", "1G"}, {"--name", "a"}, {"--token-file", short}, {"--print-config", "emacs"},
		{"--listen", "0.0.0.0:0"}, {"--listen", "nowhere"}, {"--listen", "127.0.0.1:0", "--token-file", short}, {"--listen", "127.0.0.1:0", "--token-file", open},
	} {
		refusedMCP(t, "SBX-801", args...)
	}
	refusedMCP(t, "SBX-107", "--sandbox", "nosuch")
	c := bound(t, daemon, "arguments")
	for _, tt := range []struct {
		want string
		args arguments
	}{
		{"command is empty", arguments{"command": " "}},
		{"zero byte", arguments{"command": "a\x00b"}},
		{"write_file", arguments{"command": strings.Repeat("#", 130<<10)}},
		{"session", arguments{"command": "true", "session": "../x"}},
		{"SBX-101", arguments{"command": "true", "workdir": "relative"}},
		{"cmd", arguments{"cmd": "true"}},
		{"timeout_ms", arguments{"command": "true", "timeout_ms": "soon"}},
	} {
		c.fails(t, tt.want, "bash", tt.args)
	}
	if o := c.bash(t, "true", arguments{"timeout_ms": 9e9}); !strings.Contains(strings.Join(o.Notes, ""), "timeout_ms") {
		t.Errorf("a clamped time is not told: %+v", o)
	}
	if err := c.server.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the server ended: %v", err)
	}
}

// refusedMCP fails the test unless the server ends with the code at its start.
func refusedMCP(t *testing.T, code string, args ...string) {
	t.Helper()
	if r := daemon.Try(append([]string{"mcp"}, args...)...); r.Code == 0 || !strings.Contains(r.Stderr, code) {
		t.Errorf("mcp %q: code %d, %s", args, r.Code, r.Stderr)
	}
}

// TestWorkspaceDiff: a client sees what it changed in a copy-on-write workspace.
func TestWorkspaceDiff(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	dir := readableDir(t)
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := bound(t, daemon, "diffed", "--workspace", dir+":cow")
	c.ok(t, "write_file", arguments{"path": "new/x", "content": "two\n"})
	c.ok(t, "write_file", arguments{"path": ".envrc", "content": "export A=1\n"})
	_, text := c.call(t, "workspace_diff", arguments{})
	for _, want := range []string{"added \"new/x\", 0 to 4 bytes\n", "not in the patch: \".envrc\": control file", "+++ b/new/x\n@@ -0,0 +1 @@\n+two\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}
