package agents

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/caisson-run/caisson/tests/harness"
)

// codexSocket is a websocket.
type codexSocket struct{ *websocket.Conn }

func (s codexSocket) send(m []byte) error {
	return s.Write(context.Background(), websocket.MessageText, m)
}

func (s codexSocket) receive() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m, err := s.Read(ctx)
	return m, err
}

func (s codexSocket) close() error { return s.CloseNow() }

// codexListen starts an executor that serves websockets, and returns its address.
func codexListen(t *testing.T, d *harness.Daemon, dir string, flags ...string) (cmd *exec.Cmd, url string) {
	t.Helper()
	cmd = d.Command(context.WithoutCancel(t.Context()), append([]string{"plug", "codex", "--listen", "ws://127.0.0.1:0"}, flags...)...)
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the executor ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

// open connects.
func (w *codexWire) open(url string) {
	w.t.Helper()
	ws, answer, err := websocket.Dial(w.t.Context(), url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if answer.Body != nil {
		_ = answer.Body.Close() // it has none
	}
	ws.SetReadLimit(64 << 20)
	w.link = codexSocket{ws}
}

// dial connects, and comes back to its session if it had one.
func (w *codexWire) dial(url string) {
	w.t.Helper()
	w.open(url)
	for _, p := range w.processes {
		p.missed = !p.closed
	}
	w.shakeHands()
	for id, p := range w.processes {
		if p.missed {
			w.ok("process/read", arguments{"processId": id, "afterSeq": p.events, "maxBytes": nil, "waitMs": 0})
			w.readOn(p)
		}
	}
}

// readOn takes the answer to process/read: what a process told while there was no
// connection. After that it takes what came early.
func (w *codexWire) readOn(p *codexProcess) {
	w.t.Helper()
	var answer struct {
		Result struct {
			Chunks         []codexEvent
			NextSeq        int
			Exited, Closed bool
			ExitCode       int
		}
	}
	if err := json.Unmarshal(w.raw, &answer); err != nil {
		w.t.Fatal(err)
	}
	r := answer.Result
	p.missed = false
	for _, e := range r.Chunks {
		e.Method = "process/output"
		p.take(e)
	}
	p.events, p.closed = r.NextSeq-1, r.Closed
	if r.Exited {
		p.exited, p.code = true, r.ExitCode
	}
	early := p.early
	p.early = nil
	for _, e := range early {
		if e.Seq > p.events {
			p.take(e)
		}
	}
}

// TestCodexWebsocketLosesNothing: a Codex whose connection breaks again and again, with the
// daemon killed in between, gets each byte of its commands once.
func TestCodexWebsocketLosesNothing(t *testing.T) {
	d := harness.Start(t)
	w := newCodexWire(t)
	_, url := codexListen(t, d, w.dir)
	w.dial(url)
	w.start("much", "seq 2000000", nil)
	w.start("slow", "for i in $(seq 30); do echo $i; sleep 0.1; done; exit 7", nil)
	w.start("types", "read x; echo got $x; read y; echo got $y", arguments{"pipeStdin": true})
	for i := range 12 {
		for range 40 { // of many, so that others are on their way
			if w.process("much").closed {
				break
			}
			w.next()
		}
		if err := w.link.close(); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			d.Kill(t)
			d.Launch(t)
		}
		if i == 6 {
			time.Sleep(2 * time.Second) // more comes than is kept
		}
		w.dial(url)
	}
	w.write("types", "a\n")
	w.writeAgain("types", "a\n")
	w.await("types", "got a\n")
	w.write("types", "b\n")
	if text, code := w.wait("types"); text != "got a\ngot b\n" || code != 0 {
		t.Errorf("input: %q, %d", text, code)
	}
	var want strings.Builder
	for i := range 2_000_000 {
		fmt.Fprintln(&want, i+1)
		if i == 29 {
			if text, code := w.wait("slow"); text != want.String() || code != 7 {
				t.Errorf("got %q, %d", text, code)
			}
		}
	}
	if text, code := w.wait("much"); text != want.String() || code != 0 {
		i := 0
		for i < len(text) && text[i] == want.String()[i] {
			i++
		}
		t.Errorf("%d bytes, %d; from byte %d on it differs from the %d that are right", len(text), code, i, want.Len())
	}
}

// TestCodexWebsocketSessions: a session belongs to the last that came for it, and ends
// where nobody does.
func TestCodexWebsocketSessions(t *testing.T) {
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	dir := readableDir(t)
	_, url := codexListen(t, daemon, dir)
	first := &codexWire{t: t, dir: dir, processes: map[string]*codexProcess{}}
	first.dial(url)
	first.start("1", "echo begin; sleep 1001", nil)
	first.await("1", "begin")
	second := &codexWire{t: t, dir: dir, processes: map[string]*codexProcess{"1": {}}, session: first.session}
	second.dial(url)
	if text := second.process("1").text.String(); text != "begin\n" {
		t.Errorf("the second read %q", text)
	}
	if _, err := first.link.receive(); err == nil {
		t.Error("two have one session")
	}
	other := &codexWire{t: t, dir: dir, processes: map[string]*codexProcess{}}
	other.dial(url)
	if r := other.ok("process/terminate", arguments{"processId": "1"}); r["running"] != false {
		t.Error("another session reaches the process")
	}
	if err := second.link.close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(25 * time.Second) // as long as Codex dials
	second.dial(url)
	if r := second.ok("process/terminate", arguments{"processId": "1"}); r["running"] != true {
		t.Error("the command did not live until Codex came back")
	}
}

// TestCodexWebsocketIsGuarded: without the token or from a page nobody gets in. The same
// request without the page, and with the token, does.
func TestCodexWebsocketIsGuarded(t *testing.T) {
	t.Cleanup(func() { removeSandboxes(t, "codex-") })
	_, url := codexListen(t, daemon, readableDir(t))
	bare, token, _ := strings.Cut(url, "?token=")
	own := strings.TrimSuffix(strings.Replace(bare, "ws", "http", 1), "/")
	for _, tt := range []struct {
		name, url, origin string
		status            int
	}{
		{"all that is needed", url, "", http.StatusSwitchingProtocols},
		{"no token", bare, "", http.StatusUnauthorized},
		{"another token", url + "x", "", http.StatusUnauthorized},
		{"the token as a path", bare + token, "", http.StatusUnauthorized},
		{"a page of another site", url, "https://attacker.example", http.StatusForbidden},
		{"a page of this address", url, own, http.StatusForbidden},
		{"a file", url, "null", http.StatusForbidden},
	} {
		ws, answer, err := websocket.Dial(t.Context(), tt.url, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": header(tt.origin)}})
		if answer == nil || answer.StatusCode != tt.status {
			t.Errorf("%s: %v, %v, want %d", tt.name, answer, err, tt.status)
		}
		if err == nil {
			_ = ws.CloseNow() // nothing was said
		}
	}
}

func header(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// TestCodexWebsocketEnds: what it runs ends with the executor, and not with a connection.
func TestCodexWebsocketEnds(t *testing.T) {
	d := harness.StartWith(t, "sandboxes:\n  attach_grace: 1s\n")
	w := newCodexWire(t)
	t.Run("executor", func(t *testing.T) {
		_, url := codexListen(t, d, w.dir)
		w.t = t
		w.dial(url)
		w.start("1", "sleep 1001 & echo begin; sleep 1002", nil)
		w.await("1", "begin")
		if err := w.link.close(); err != nil {
			t.Fatal(err)
		}
		if ps := codexPS(t, d); !bytes.Contains(ps, []byte("sleep 100")) {
			t.Errorf("ended with its connection: %s", ps)
		}
	})
	eventually(t, "end of the command", func() bool { return !bytes.Contains(codexPS(t, d), []byte("sleep 100")) })
}

// codexPS lists the processes of the one sandbox of a daemon.
func codexPS(t *testing.T, d *harness.Daemon) []byte {
	t.Helper()
	return []byte(d.Run(t, "exec", strings.TrimSpace(d.Run(t, "ls", "-q").Stdout), "--", "ps").Stdout)
}
