package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// recordedDir stands for the project in a recorded session.
const recordedDir = "/tmp/caisson-recorded"

// recordedSteps are the commands of a recorded session. All end by themselves.
var recordedSteps = []codexStep{
	{run(inside + "pwd"), []string{"caisson-init\n", "exited with code 0"}},
	{codexCall{patch: addPatch}, []string{"Success"}},
	{codexCall{patch: updatePatch}, []string{"Success"}},
	{run("cat new/dir/Makefile; echo err >&2; exit 3"), []string{"built again", "err", "code 3"}},
	{codexCall{name: "exec_command", args: arguments{"cmd": inside + "read x; echo got $x", "tty": true, "yield_time_ms": 700}}, []string{"caisson-init", "session ID"}},
	{codexCall{input: "hello\n"}, []string{"got hello"}},
	{run("for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.2; done"), []string{"line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\n"}},
}

// newRecordedSession is in the directory of the recording where there is one to be made.
func newRecordedSession(t *testing.T, program string) codexSession {
	t.Helper()
	s := newCodexSession(t, program)
	if *update {
		if err := os.Mkdir(recordedDir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(recordedDir) }) // the next update finds what is left
		s.project = recordedDir
	}
	return s
}

// testCodexStdio is a session over standard input and output. -update keeps it.
func testCodexStdio(t *testing.T, program string) {
	s := newRecordedSession(t, program)
	log := filepath.Join(t.TempDir(), "sent")
	s.edit = func(settings string) string {
		tee, _ := json.Marshal([]string{"-c", `tee "$0" | "$@"`, log, daemon.Command(t.Context()).Path}) // of plain values
		through := "program = \"/bin/sh\"\nargs = " + strings.TrimSuffix(string(tee), "]") + ", "
		return regexp.MustCompile(`program = .*\nargs = \[`).ReplaceAllLiteralString(settings, through)
	}
	s.check(t, "danger-full-access", recordedSteps)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	keepCodex(t, "codex-stdio", bytes.SplitAfter(bytes.TrimSpace(b), []byte("\n")))
}

// testCodexWebsocket is a session whose connection breaks in the middle of a command: the
// model gets each line once.
func testCodexWebsocket(t *testing.T, program string) {
	s := newRecordedSession(t, program)
	_, url := codexListen(t, daemon, s.project)
	proxy := newCuttingProxy(t, url, "line 3\n")
	s.edit = func(string) string { return codexSocketSettings(strings.Replace(proxy.URL, "http", "ws", 1)) }
	s.check(t, "danger-full-access", recordedSteps)
	if proxy.dialed != 2 {
		t.Errorf("Codex connected %d times, want 2", proxy.dialed)
	}
	keepCodex(t, "codex-websocket", proxy.sent)
}

// codexSocketSettings is an environments.toml with an executor that is dialed.
func codexSocketSettings(url string) string {
	return "default = \"caisson\"\ninclude_local = false\n[[environments]]\nid = \"caisson\"\nurl = " + strconv.Quote(url) + "\n"
}

// cuttingProxy forwards to an executor, keeps what Codex sent, and breaks the connection
// before Codex gets a certain output.
type cuttingProxy struct {
	*httptest.Server
	to, cut string

	mu     sync.Mutex
	sent   [][]byte
	dialed int
}

func newCuttingProxy(t *testing.T, to, cut string) *cuttingProxy {
	t.Helper()
	p := &cuttingProxy{to: to, cut: cut}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *cuttingProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	near, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer func() { _ = near.CloseNow() }()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	far, _, err := websocket.Dial(ctx, p.to, nil) //nolint:bodyclose // it has none
	if err != nil {
		return
	}
	defer func() { _ = far.CloseNow() }()
	p.mu.Lock()
	p.dialed++
	p.mu.Unlock()
	near.SetReadLimit(-1)
	far.SetReadLimit(-1)
	go func() {
		defer cancel()
		_ = forward(ctx, far, near, p.wanted) // its end is that of the connection
	}()
	_ = forward(ctx, near, far, func(m []byte) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, bytes.Clone(m))
		return true
	})
}

// wanted is false for the message before which the connection breaks.
func (p *cuttingProxy) wanted(m []byte) bool {
	var event struct{ Params codexEvent }
	_ = json.Unmarshal(m, &event) // what is no event has no output
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == "" || string(event.Params.Chunk) != p.cut {
		return true
	}
	p.cut = ""
	return false
}

func forward(ctx context.Context, from, to *websocket.Conn, wanted func([]byte) bool) error {
	for {
		kind, m, err := from.Read(ctx)
		if err != nil {
			return err
		}
		if !wanted(m) {
			return errors.New("cut")
		}
		if err := to.Write(ctx, kind, m); err != nil {
			return err
		}
	}
}

// keepCodex records what Codex sent.
func keepCodex(t *testing.T, name string, sent [][]byte) {
	t.Helper()
	if len(sent) < 10 {
		t.Errorf("Codex sent %d messages", len(sent))
	}
	if !*update {
		return
	}
	var session wireSession
	for _, m := range sent {
		session.Sent = append(session.Sent, m)
	}
	session.write(t, name)
}

// codexVarying is the part of an answer that differs from run to run.
var codexVarying = regexp.MustCompile(`"sessionId":"[^"]*"|"modifiedAtMs":-?\d+`)

// replay sends the messages of a session. It returns the answers, and after them what each
// process told.
func (w *codexWire) replay(s wireSession, url string) (list []json.RawMessage) {
	w.t.Helper()
	var started []string
	for i, raw := range s.Sent {
		message := w.decode(raw)
		id := message.Params.ProcessID
		switch {
		case message.Method == "initialize" && w.session != "": // the connection broke
			next := w.decode(s.Sent[i+2]).Params
			w.cut(url, next.ProcessID, next.AfterSeq)
			raw = bytes.ReplaceAll(raw, []byte(message.Params.ResumeSessionID), []byte(w.session))
		case message.Method == "process/start":
			started = append(started, id)
		case message.Method == "process/terminate":
			w.wait(id)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, bytes.ReplaceAll(raw, []byte(recordedDir), []byte(w.dir))); err != nil {
			w.t.Fatal(err)
		}
		if err := w.link.send(line.Bytes()); err != nil {
			w.t.Fatal(err)
		}
		if message.ID == 0 {
			continue
		}
		answered, result, _ := w.next()
		for ; answered != message.ID; answered, result, _ = w.next() {
		}
		switch message.Method {
		case "process/read": // its chunks are those of this run
			w.readOn(w.process(id))
			continue
		case "initialize":
			w.session, _ = result["sessionId"].(string)
		}
		answer := codexVarying.ReplaceAllStringFunc(string(w.raw), func(s string) string {
			name, _, _ := strings.Cut(s, ":")
			return name + ":0"
		})
		list = append(list, json.RawMessage(strings.ReplaceAll(answer, w.dir, recordedDir)))
	}
	for _, id := range started {
		p := w.process(id)
		lines := strings.Split(strings.ReplaceAll(p.text.String(), w.dir, recordedDir), "\n")
		slices.Sort(lines) // two streams have no order
		told, err := json.Marshal(arguments{"terminal": p.stream == "pty", "lines": lines, "exitCode": p.code})
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, told)
	}
	return list
}

// codexMessage is the part of a message that a replay looks at.
type codexMessage struct {
	ID     int
	Method string
	Params struct {
		ProcessID       string
		ResumeSessionID string
		AfterSeq        int
	}
}

func (w *codexWire) decode(raw []byte) (m codexMessage) {
	w.t.Helper()
	if err := json.Unmarshal(raw, &m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// cut breaks the connection after an event of a process.
func (w *codexWire) cut(url, id string, after int) {
	w.t.Helper()
	p := w.process(id)
	for p.events < after {
		w.next()
	}
	if err := w.link.close(); err != nil {
		w.t.Fatal(err)
	}
	p.missed = true
	w.open(url)
}

// TestRecordedCodex replays sessions of Codex without it: each answer is the one that it
// got, and so is what the commands told.
func TestRecordedCodex(t *testing.T) {
	for _, transport := range []string{"stdio", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			t.Cleanup(func() { removeSandboxes(t, "codex-") })
			w := newCodexWire(t)
			url := ""
			if transport == "stdio" {
				w.begin(daemon)
			} else {
				_, url = codexListen(t, daemon, w.dir)
				w.open(url)
			}
			compareWire(t, "codex-"+transport, func(s wireSession) []json.RawMessage { return w.replay(s, url) })
		})
	}
}
