package agents

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// codexWire speaks to caisson plug codex as Codex does.
type codexWire struct {
	t         *testing.T
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner
	dir       string
	last      int
	processes map[string]*codexProcess
}

// codexProcess is what was told of a process.
type codexProcess struct {
	text   strings.Builder
	stream string // of the last output
	events int
	code   int
	exited bool
	closed bool
}

// codexServe starts an executor in a directory of its own, and shakes hands.
func codexServe(t *testing.T, d *harness.Daemon) *codexWire {
	t.Helper()
	w := &codexWire{t: t, dir: readableDir(t), processes: map[string]*codexProcess{}}
	w.cmd = d.Command(context.WithoutCancel(t.Context()), "plug", "codex", "--serve")
	w.cmd.Dir = w.dir
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
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
		_ = w.in.Close() // a test may have done so
		_ = w.cmd.Wait() // a test may have killed it
	})
	w.out = bufio.NewScanner(out)
	w.out.Buffer(nil, 64<<20)
	w.ok("initialize", arguments{"clientName": "test"})
	w.send(arguments{"method": "initialized", "params": arguments{}})
	return w
}

func (w *codexWire) send(m arguments) {
	w.t.Helper()
	if err := json.NewEncoder(w.in).Encode(m); err != nil {
		w.t.Fatal(err)
	}
}

// next reads a message; an event is kept.
func (w *codexWire) next() (id int, result arguments, code int) {
	w.t.Helper()
	if !w.out.Scan() {
		w.t.Fatalf("the executor ended: %v", w.out.Err())
	}
	var m struct {
		ID     int
		Method string
		Params struct {
			ProcessID string
			Seq       int
			Stream    string
			Chunk     []byte
			ExitCode  int
		}
		Result arguments
		Error  struct{ Code int }
	}
	if err := json.Unmarshal(w.out.Bytes(), &m); err != nil {
		w.t.Fatalf("%v: %.300s", err, w.out.Bytes())
	}
	if m.Method == "" {
		return m.ID, m.Result, m.Error.Code
	}
	p := w.process(m.Params.ProcessID)
	if p.events++; m.Params.Seq != p.events {
		w.t.Errorf("event %d has the number %d", p.events, m.Params.Seq)
	}
	switch m.Method {
	case "process/output":
		p.stream = m.Params.Stream
		p.text.Write(m.Params.Chunk)
	case "process/exited":
		p.exited, p.code = true, m.Params.ExitCode
	case "process/closed":
		p.closed = true
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
		w.t.Fatalf("%s %v: %d, %s", method, params, code, w.out.Bytes())
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
	if r := w.ok("process/write", arguments{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(text)), "writeId": "1"}); r["status"] != "accepted" {
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
