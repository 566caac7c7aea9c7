package agents

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// codexWire speaks to caisson plug codex as Codex does.
type codexWire struct {
	t         *testing.T
	cmd       *exec.Cmd
	link      codexLink
	raw       []byte // the last message
	dir       string
	session   string
	last      int
	processes map[string]*codexProcess
}

// codexLink carries messages: lines, or frames of a websocket.
type codexLink interface {
	send([]byte) error
	receive() ([]byte, error)
	close() error
}

// codexLines are standard input and output.
type codexLines struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func (l codexLines) send(m []byte) error {
	_, err := l.in.Write(append(m, '\n'))
	return err
}

func (l codexLines) receive() ([]byte, error) {
	if !l.out.Scan() {
		return nil, cmp.Or(l.out.Err(), io.EOF)
	}
	return l.out.Bytes(), nil
}

func (l codexLines) close() error { return l.in.Close() }

// codexProcess is what was told of a process.
type codexProcess struct {
	text   strings.Builder
	stream string // of the last output
	events int
	writes int
	missed bool         // a read has to tell first what came without a connection
	early  []codexEvent // came before its answer
	code   int
	exited bool
	closed bool
}

// codexEvent is an event of a process, and what process/read returns of one.
type codexEvent struct {
	Method   string
	Seq      int
	Stream   string
	Chunk    []byte
	ExitCode int
}

func (p *codexProcess) take(e codexEvent) {
	p.events = e.Seq
	switch e.Method {
	case "process/output":
		p.stream = e.Stream
		p.text.Write(e.Chunk)
	case "process/exited":
		p.exited, p.code = true, e.ExitCode
	case "process/closed":
		p.closed = true
	}
}

// codexServe starts an executor in a directory of its own, and shakes hands.
func codexServe(t *testing.T, d *harness.Daemon) *codexWire {
	t.Helper()
	w := newCodexWire(t)
	w.begin(d)
	w.shakeHands()
	return w
}

// newCodexWire is in a directory of its own.
func newCodexWire(t *testing.T) *codexWire {
	t.Helper()
	return &codexWire{t: t, dir: readableDir(t), processes: map[string]*codexProcess{}}
}

// begin starts an executor that serves standard input and output.
func (w *codexWire) begin(d *harness.Daemon) {
	t := w.t
	t.Helper()
	w.cmd = d.Command(context.WithoutCancel(t.Context()), "plug", "codex", "--serve")
	w.cmd.Dir = w.dir
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()   // a test may have done so
		_ = w.cmd.Wait() // a test may have killed it
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	w.link = codexLines{in, lines}
}

func (w *codexWire) shakeHands() {
	w.t.Helper()
	w.last = 0
	w.session, _ = w.ok("initialize", arguments{"clientName": "test", "resumeSessionId": orNull(w.session)})["sessionId"].(string)
	w.send(arguments{"method": "initialized", "params": arguments{}})
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (w *codexWire) send(m arguments) {
	w.t.Helper()
	b, err := json.Marshal(m)
	if err == nil {
		err = w.link.send(b)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// next reads a message; an event is kept.
func (w *codexWire) next() (id int, result arguments, code int) {
	w.t.Helper()
	raw, err := w.link.receive()
	if err != nil {
		w.t.Fatalf("the executor ended: %v", err)
	}
	w.raw = raw
	var m struct {
		ID     int
		Method string
		Params struct {
			codexEvent
			ProcessID string
		}
		Result arguments
		Error  struct{ Code int }
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		w.t.Fatalf("%v: %.300s", err, raw)
	}
	if m.Method == "" {
		return m.ID, m.Result, m.Error.Code
	}
	p := w.process(m.Params.ProcessID)
	e := m.Params.codexEvent
	e.Method = m.Method
	switch {
	case p.missed:
		p.early = append(p.early, e)
	case e.Seq != p.events+1:
		w.t.Errorf("event %d has the number %d", p.events+1, e.Seq)
	default:
		p.take(e)
	}
	return m.ID, m.Result, m.Error.Code
}

func (w *codexWire) call(method string, params any) (arguments, int) {
	w.t.Helper()
	w.last++
	w.send(arguments{"id": w.last, "method": method, "params": params})
	for {
		if id, result, code := w.next(); id == w.last {
			return result, code
		}
	}
}

func (w *codexWire) ok(method string, params any) arguments {
	w.t.Helper()
	result, code := w.call(method, params)
	if code != 0 {
		w.t.Fatalf("%s %v: %d, %s", method, params, code, w.raw)
	}
	return result
}

func (w *codexWire) start(id, script string, changes arguments) {
	w.t.Helper()
	params := arguments{
		"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "file://" + w.dir, "env": arguments{"TERM": "dumb"}, "tty": false, "pipeStdin": false,
		"envPolicy": arguments{"inherit": "all", "ignoreDefaultExcludes": true},
	}
	maps.Copy(params, changes)
	w.ok("process/start", params)
}

func (w *codexWire) write(id, text string) {
	w.t.Helper()
	w.process(id).writes++
	w.writeAgain(id, text)
}

// writeAgain is for a write whose answer did not come.
func (w *codexWire) writeAgain(id, text string) {
	w.t.Helper()
	params := arguments{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(text)), "writeId": strconv.Itoa(w.process(id).writes)}
	if r := w.ok("process/write", params); r["status"] != "accepted" {
		w.t.Errorf("%q: %v", text, r)
	}
}

func (w *codexWire) process(id string) *codexProcess {
	if w.processes[id] == nil {
		w.processes[id] = &codexProcess{}
	}
	return w.processes[id]
}

// await reads until a process has written a text.
func (w *codexWire) await(id, want string) {
	w.t.Helper()
	for p := w.process(id); !strings.Contains(p.text.String(), want); w.next() {
		if p.closed {
			w.t.Fatalf("%s ended with %q, without %q", id, p.text.String(), want)
		}
	}
}

// wait reads until a process has ended.
func (w *codexWire) wait(id string) (text string, code int) {
	w.t.Helper()
	p := w.process(id)
	for !p.closed {
		w.next()
	}
	return p.text.String(), p.code
}
