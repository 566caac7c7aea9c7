package agents

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

func TestCodexProcesses(t *testing.T) {
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	w := codexServe(t, daemon)
	w.start("tty", "tty; read x; echo got $x; stty size; sleep 1001", arguments{"tty": true})
	w.await("tty", "/dev/pts/")
	w.write("tty", "hello\n")
	w.await("tty", "got hello\r\n24 80\r\n")
	w.write("tty", "\x03")
	if _, code := w.wait("tty"); code != 130 {
		t.Errorf("Ctrl-C: exit code %d", code)
	}
	if stream := w.process("tty").stream; stream != "pty" {
		t.Errorf("the stream of a terminal is %q", stream)
	}

	w.start("pipe", "read x; echo got $x; read y; echo got $y", arguments{"pipeStdin": true})
	w.write("pipe", "a\n")
	w.write("pipe", "b\n")
	if text, code := w.wait("pipe"); text != "got a\ngot b\n" || code != 0 {
		t.Errorf("input: %q, %d", text, code)
	}

	w.start("empty", "cat; echo end", nil)
	if text, _ := w.wait("empty"); text != "end\n" {
		t.Errorf("an input that is not there: %q", text)
	}

	w.start("interrupt", "trap 'echo trapped; exit 7' INT; echo begin; sleep 1 & wait", nil)
	w.await("interrupt", "begin")
	w.ok("process/signal", arguments{"processId": "interrupt", "signal": "interrupt"})
	if text, code := w.wait("interrupt"); text != "begin\ntrapped\n" || code != 7 {
		t.Errorf("an interrupt: %q, %d", text, code)
	}

	w.start("terminate", "setsid sleep 1003 & echo begin; sleep 1002", nil)
	w.await("terminate", "begin")
	if r := w.ok("process/terminate", arguments{"processId": "terminate"}); r["running"] != true {
		t.Errorf("got %v", r)
	}
	if _, code := w.wait("terminate"); code != 137 {
		t.Errorf("exit code %d", code)
	}
	w.start("ps", "ps", nil)
	if text, _ := w.wait("ps"); !strings.Contains(text, "ps") || strings.Contains(text, "sleep 1002") || strings.Contains(text, "sleep 1003") {
		t.Errorf("left: %s", text)
	}

	// What a command leaves behind is told as long as it may write, and can be ended.
	w.start("late", "(sleep 0.5; echo late) & echo begin", nil)
	if text, code := w.wait("late"); text != "begin\nlate\n" || code != 0 {
		t.Errorf("a process in the background: %q, %d", text, code)
	}
	w.start("server", "sleep 1004 & echo begin; exit 3", nil)
	for !w.process("server").exited {
		w.next()
	}
	w.start("sees", "ps", nil)
	if text, _ := w.wait("sees"); !strings.Contains(text, "sleep 1004") {
		t.Errorf("not running: %s", text)
	}
	w.ok("process/terminate", arguments{"processId": "server"})
	if text, code := w.wait("server"); text != "begin\n" || code != 3 {
		t.Errorf("a process that was left behind: %q, %d", text, code)
	}
	w.start("gone", "ps", nil)
	if text, _ := w.wait("gone"); strings.Contains(text, "sleep 1004") {
		t.Errorf("left: %s", text)
	}

	for i := range 30 { // at once
		w.start(fmt.Sprint("n", i), fmt.Sprintf("sleep 0.3; echo %d; exit %d", i, i), nil)
	}
	for i := range 30 {
		if text, code := w.wait(fmt.Sprint("n", i)); text != fmt.Sprintln(i) || code != i {
			t.Errorf("process %d: %q, %d", i, text, code)
		}
	}

	if _, code := w.call("process/start", arguments{"processId": "cd", "argv": []string{"true"}, "cwd": "file:///elsewhere"}); code != -32603 || !strings.Contains(string(w.raw), "--cd") {
		t.Errorf("another directory: %d, %s", code, w.raw)
	}
	w.start("much", "head -c 30000000 /dev/zero", nil)
	if text, _ := w.wait("much"); len(text) != 30_000_000 {
		t.Errorf("%d bytes of output", len(text))
	}
}

func TestCodexFiles(t *testing.T) {
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	w := codexServe(t, daemon)
	uri := func(name string) string { return "file://" + filepath.Join(w.dir, name) }
	if err := os.Symlink("/etc/shadow", filepath.Join(w.dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	content := base64.StdEncoding.EncodeToString([]byte("content"))
	for i, tt := range []struct {
		method string
		params arguments
		code   int
		want   string // in the result
	}{
		{"fs/writeFile", arguments{"path": uri("a/b"), "dataBase64": content}, -32004, ""},
		{"fs/createDirectory", arguments{"path": uri("a")}, 0, ""},
		{"fs/createDirectory", arguments{"path": uri("a")}, 0, ""},
		{"fs/createDirectory", arguments{"path": uri("a"), "recursive": false}, -32603, ""},
		{"fs/writeFile", arguments{"path": uri("a/b"), "dataBase64": content}, 0, ""},
		{"fs/writeFile", arguments{"path": "file:///etc/b", "dataBase64": content}, -32600, ""},
		{"fs/readFile", arguments{"path": uri("link/b")}, 0, content},
		{"fs/readFile", arguments{"path": uri("a")}, -32600, ""},
		{"fs/readFile", arguments{"path": uri("a/b/c")}, -32603, ""},
		{"fs/readFile", arguments{"path": uri("none")}, -32004, ""},
		{"fs/readFile", arguments{"path": uri("out")}, -32004, ""}, // there is none inside
		{"fs/getMetadata", arguments{"path": uri("a/b")}, 0, `"isFile":true,"isSymlink":false,"modifiedAtMs"`},
		{"fs/getMetadata", arguments{"path": uri("link")}, 0, `"isDirectory":true,"isFile":false,"isSymlink":true`},
		{"fs/getMetadata", arguments{"path": uri("out")}, -32004, ""},
		{"fs/getMetadata", arguments{"path": uri("a/b/c")}, -32603, ""},
		{"fs/getMetadata", arguments{"path": "file:///"}, 0, `"isDirectory":true`},
		{"fs/canonicalize", arguments{"path": uri("link/../link/b")}, 0, "/a/b"},
		{"fs/canonicalize", arguments{"path": uri("none")}, -32004, ""},
		{"fs/copy", arguments{"sourcePath": uri("a"), "destinationPath": uri("é #%"), "recursive": true}, -32602, ""},
		{"fs/copy", arguments{"sourcePath": uri("a"), "destinationPath": uri("%C3%A9%20%23%25"), "recursive": false}, -32600, ""},
		{"fs/copy", arguments{"sourcePath": uri("a"), "destinationPath": uri("%C3%A9%20%23%25"), "recursive": true}, 0, ""},
		{"fs/readDirectory", arguments{"path": uri("")}, 0, `{"fileName":"é #%","isDirectory":true,"isFile":false}`},
		{"fs/readDirectory", arguments{"path": uri("a/b")}, -32603, ""},
		{"fs/walk", arguments{"path": uri(""), "options": arguments{"maxDepth": 6, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": true}}, 0, `/%C3%A9%20%23%25/b"`},
		{"fs/walk", arguments{"path": uri(""), "options": arguments{"maxDepth": 6, "maxDirectories": 9, "maxEntries": 1}}, 0, `"truncated":true`},
		{"fs/remove", arguments{"path": uri("a"), "recursive": false}, -32603, ""},
		{"fs/remove", arguments{"path": uri("link")}, 0, ""},
		{"fs/remove", arguments{"path": uri("a")}, 0, ""},
		{"fs/remove", arguments{"path": uri("a")}, 0, ""},
		{"fs/remove", arguments{"path": uri("a"), "force": false}, -32004, ""},
	} {
		result, code := w.call(tt.method, tt.params)
		b, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		if code != tt.code || !strings.Contains(string(b), tt.want) {
			t.Errorf("call %d, %s %v: %d %s, want %d %s", i, tt.method, tt.params, code, b, tt.code, tt.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(w.dir, "é #%/b")); err != nil || string(b) != "content" {
		t.Errorf("the host has %q, %v", b, err)
	}
}

// TestCodexFilePolicy: a call for files gets no more than its policy gives, by whatever way.
func TestCodexFilePolicy(t *testing.T) {
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	w := codexServe(t, daemon)
	for _, name := range []string{".git/hooks", "secret", "src"} {
		if err := os.MkdirAll(filepath.Join(w.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../.git", filepath.Join(w.dir, "src/link")); err != nil {
		t.Fatal(err)
	}
	entry := func(name, access string) arguments {
		return arguments{"access": access, "path": arguments{"type": "path", "path": "file://" + name}}
	}
	sandbox := arguments{"permissions": arguments{"type": "managed", "network": "restricted", "file_system": arguments{"type": "restricted", "entries": []any{
		entry("/", "read"), entry(w.dir, "write"), entry(w.dir+"/.git", "read"), entry(w.dir+"/secret", "deny"),
	}}}}
	for i, tt := range []struct {
		method, name string
		code         int
	}{
		{"fs/writeFile", "src/x", 0},
		{"fs/writeFile", ".git/config", -32600},
		{"fs/writeFile", "src/link/config", -32600},
		{"fs/writeFile", "src/../.git/config", -32600},
		{"fs/writeFile", "secret/x", -32600},
		{"fs/writeFile", "../x", -32600},
		{"fs/createDirectory", "new/a/b", 0},
		{"fs/createDirectory", "src/link/a/b", -32600},
		{"fs/readDirectory", ".git", 0},
		{"fs/readDirectory", "secret", -32600},
		{"fs/walk", "", -32600}, // it would show what is in secret
		{"fs/walk", "src", 0},
		{"fs/remove", ".git/hooks", -32600},
		{"fs/remove", "", -32600},
		{"fs/remove", "src/link", 0}, // the link alone
	} {
		params := arguments{"path": "file://" + w.dir + "/" + tt.name, "dataBase64": "YQ==", "sandbox": sandbox, "options": arguments{"maxDepth": 1, "maxDirectories": 9, "maxEntries": 9}}
		if _, code := w.call(tt.method, params); code != tt.code {
			t.Errorf("call %d, %s %s: %d, want %d: %.300s", i, tt.method, tt.name, code, tt.code, w.raw)
		}
	}
	if list, err := os.ReadDir(filepath.Join(w.dir, ".git")); err != nil || len(list) != 1 {
		t.Errorf("protected: %v, %v", list, err)
	}
}

// TestCodexRestartedDaemon: a command goes on over a daemon that is killed, and no event is
// lost or told twice.
func TestCodexRestartedDaemon(t *testing.T) {
	d := harness.Start(t)
	w := codexServe(t, d)
	w.start("slow", "for i in $(seq 40); do echo $i; sleep 0.1; done", nil)
	w.await("slow", "2\n")
	d.Kill(t)
	d.Launch(t)
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintln(&want, i+1)
	}
	if text, code := w.wait("slow"); text != want.String() || code != 0 {
		t.Errorf("got %q, %d", text, code)
	}
}

// TestCodexEnds: the commands end with their executor, however it ends.
func TestCodexEnds(t *testing.T) {
	d := harness.StartWith(t, "sandboxes:\n  attach_grace: 1s\n")
	for name, end := range map[string]func(*codexWire) error{
		"EOF":  func(w *codexWire) error { return w.link.close() },
		"TERM": func(w *codexWire) error { return w.cmd.Process.Signal(syscall.SIGTERM) },
		"KILL": func(w *codexWire) error { return w.cmd.Process.Kill() },
	} {
		w := codexServe(t, d)
		w.start("1", "sleep 1001 & echo begin; sleep 1002", nil)
		w.await("1", "begin")
		if name != "KILL" { // nobody ends then what was left behind
			w.start("2", "sleep 1003 &", nil)
			for !w.process("2").exited {
				w.next()
			}
		}
		names := strings.Fields(d.Run(t, "ls", "-q").Stdout)
		sleeps := func() bool {
			return slices.ContainsFunc(names, func(box string) bool { return strings.Contains(d.Run(t, "exec", box, "--", "ps").Stdout, "sleep 100") })
		}
		if !sleeps() {
			t.Fatal("the probe sees no sleep")
		}
		if err := end(w); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		eventually(t, name+": end of the command", func() bool { return !sleeps() })
		t.Logf("%s: ended within %v", name, time.Since(begin))
	}
}

// TestCodexWithoutDaemon: Codex would go on without an executor if the handshake failed, so
// each command says why it cannot run.
func TestCodexWithoutDaemon(t *testing.T) {
	d := harness.Start(t)
	d.Stop(t)
	w := codexServe(t, d)
	if _, code := w.call("process/start", arguments{"processId": "1", "argv": []string{"true"}, "cwd": "file:///"}); code != -32603 || !strings.Contains(string(w.raw), "SBX-802") {
		t.Errorf("got %d, %s", code, w.raw)
	}
}
