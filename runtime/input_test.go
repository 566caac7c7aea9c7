package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/plan"
)

// echo starts a command of sandbox s that copies its input once it is poked.
func (f *fixture) echo(t *testing.T) (id string, e ExecInfo) {
	t.Helper()
	id = f.session(t, plan.CreateRequest{Name: "s"}).ID
	r := script("await:10", "cat", "exit:0")
	r.Stdin = true
	e, err := f.StartExec(callerContext(t), "s", r)
	if err != nil {
		t.Fatal(err)
	}
	return id, e
}

// output follows a command to its end and returns its output.
func (f *fixture) output(t *testing.T, exec string) string {
	t.Helper()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := f.Attach(callerContext(t), "s", exec, AttachOptions{}, IO{Stdout: &out})
		done <- err
	}()
	if err := within(t, "the end of the command", done); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// send sends input that the command's pipe has room for.
func (f *fixture) send(t *testing.T, exec string, r InputRequest) InputState {
	t.Helper()
	state, err := f.SendInput(callerContext(t), "s", exec, r)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestInputOfCallersThatLeave: callers that go away while the command does not read leave
// nothing behind in the daemon. The bytes that the pipe took stay there, and the next
// caller's input follows them.
func TestInputOfCallersThatLeave(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, e := f.echo(t)
	leave := func(input string, after time.Duration) {
		t.Helper()
		gone, hangUp := context.WithTimeout(ctx, after)
		defer hangUp()
		_, err := f.SendInput(gone, "s", e.ID, InputRequest{Data: []byte(input)})
		errtest.Want(t, err, sbxerr.Canceled)
	}
	long := strings.Repeat("0123456789abcde\n", 64<<10)
	leave(long, time.Second) // more than a pipe holds, which a busy host takes a while to fill
	for range 20 {
		leave("lost", 20*time.Millisecond)
	}
	if n := strings.Count(stacks(), "SendInput("); n > 0 {
		t.Errorf("%d calls still write", n)
	}
	f.engine.poke(t, id)
	state := f.send(t, e.ID, InputRequest{Data: []byte("the next one's"), Close: true})
	out := f.output(t, e.ID)
	got, ok := strings.CutSuffix(out, "the next one's")
	if !ok || got == "" || !strings.HasPrefix(long, got) {
		t.Errorf("the command got %d bytes, next one's last: %v, beginning with the first one's: %v", len(out), ok, strings.HasPrefix(long, got))
	}
	if !state.Closed || state.Offset != int64(len(out)) {
		t.Errorf("%+v, want the %d bytes that the command wrote back", state, len(out))
	}
}

// TestGivenInputGoesWithItsCaller: the daemon keeps no input of a caller that is gone.
// The same input, sent from offset 0, is then complete.
func TestGivenInputGoesWithItsCaller(t *testing.T) {
	f := newFixture(t)
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	long := strings.Repeat("0123456789abcde\n", 12<<10) // more than a pipe holds
	ctx, leave := context.WithCancel(callerContext(t))
	started, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := f.Exec(ctx, "s", script("await:10", "cat", "exit:0"), IO{
			Stdin: []byte(long), Started: func(_ Info, e ExecInfo) { started <- e.ID },
		})
		ended <- err
	}()
	exec := within(t, "the start", started)
	leave()
	errtest.Want(t, within(t, "the end of the call", ended), sbxerr.Canceled)
	eventually(t, "the end of the sending", func() bool { return !strings.Contains(stacks(), "sendGiven(") })
	f.engine.poke(t, id)
	sent := make(chan InputState, 1)
	go func() {
		state, _ := f.SendInput(callerContext(t), "s", exec, InputRequest{Offset: new(int64), Data: []byte(long), Close: true})
		sent <- state
	}()
	if out := f.output(t, exec); out != long {
		t.Errorf("the command got %d of %d bytes", len(out), len(long))
	}
	if state := within(t, "the end of the input", sent); state != (InputState{int64(len(long)), true}) {
		t.Errorf("%+v", state)
	}
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:goruntime.Stack(buf, true)])
}

// TestInputIsRepeatable: with offsets no byte is sent twice, and none is left out.
func TestInputIsRepeatable(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id, e := f.echo(t)
	at := func(offset int64, data string, end bool) InputRequest {
		return InputRequest{Offset: &offset, Data: []byte(data), Close: end}
	}
	for _, step := range []struct {
		InputRequest
		want InputState
	}{
		{at(0, "one", false), InputState{3, false}},
		{at(0, "one", false), InputState{3, false}},
		{at(1, "ne two", false), InputState{7, false}},
		{InputRequest{Data: []byte(" three")}, InputState{13, false}},
		{at(13, "", true), InputState{13, true}},
		{at(7, " three", true), InputState{13, true}},
	} {
		if got := f.send(t, e.ID, step.InputRequest); got != step.want {
			t.Errorf("offset %v, %q: %+v, want %+v", step.Offset, step.Data, got, step.want)
		}
	}
	_, err := f.SendInput(ctx, "s", e.ID, at(14, "late", false))
	errtest.Want(t, err, sbxerr.Config, "offset 14: the command has 13 bytes of input")
	f.engine.poke(t, id)
	if out := f.output(t, e.ID); out != "one two three" {
		t.Errorf("the command got %q", out)
	}
	if got := f.send(t, e.ID, at(13, "after its end", false)); got != (InputState{13, true}) {
		t.Errorf("after its end: %+v", got)
	}
}

// TestInputOfAKilledDaemon: an earlier daemon that was killed at any step of a move leaves
// the next one with an exact count, and input sent again from its offset is whole.
func TestInputOfAKilledDaemon(t *testing.T) {
	for name, tc := range map[string]struct {
		record, staged, moved int // bytes
	}{
		"staged, not recorded": {0, 9, 0},
		"recorded":             {9, 9, 0},
		"moved in part":        {9, 9, 4},
		"moved":                {9, 9, 9},
		"nothing staged":       {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id, e := f.echo(t)
			f.send(t, e.ID, InputRequest{Data: []byte("known")})
			const part = "+and more"
			exec, err := f.byID(id).execution(e.ID)
			if err != nil {
				t.Fatal(err)
			}
			stdin, staging := exec.input()
			if _, err := staging.WriteString(part[:tc.staged]); err != nil {
				t.Fatal(err)
			}
			counted := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 5), uint64(tc.record))
			if err := os.WriteFile(f.paths.input(id, 1), counted, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(stdin, staging, int64(tc.moved)); err != nil {
				t.Fatal(err)
			}
			offset := int64(5)
			state := f.send(t, e.ID, InputRequest{Offset: &offset, Data: []byte(part), Close: true})
			if state != (InputState{14, true}) {
				t.Errorf("%+v", state)
			}
			f.engine.poke(t, id)
			if out := f.output(t, e.ID); out != "known"+part {
				t.Errorf("the command got %q", out)
			}
		})
	}
}

// TestInputOfACommandWithoutOne is refused.
func TestInputOfACommandWithoutOne(t *testing.T) {
	f := newFixture(t)
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	e, err := f.StartExec(callerContext(t), "s", script("await:10", "exit:0"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.SendInput(callerContext(t), "s", e.ID, InputRequest{Data: []byte("x")})
	errtest.Want(t, err, sbxerr.State, "command 1 of sandbox s was started without an input")
	errtest.Want(t, f.ResizeExec(callerContext(t), "s", e.ID, plan.WinSize{Rows: 1, Cols: 1}), sbxerr.State, "has no terminal")
	f.engine.poke(t, id)
}
