package runtime

import (
	"bytes"
	"context"
	"io"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/sbxerr"
	"github.com/caisson-run/caisson/sbxerr/errtest"
)

// caller is the input of a caller who goes away with ctx.
type caller struct {
	ctx   context.Context // a reader has none
	says  io.Reader
	reads atomic.Int32
}

func (c *caller) Read(p []byte) (int, error) {
	if n, _ := c.says.Read(p); n > 0 {
		c.reads.Add(1)
		return n, nil
	}
	<-c.ctx.Done()
	return 0, ErrInputLeft
}

// TestInputOfCallersThatLeave: those who go away while the command reads nothing
// leave nothing in the daemon; what was written of their input stays written, and
// what the next one sends comes right behind it.
func TestInputOfCallersThatLeave(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	id := f.session(t, plan.CreateRequest{Name: "s"}).ID
	r := script("await:10", "cat", "exit:0")
	r.Stdin = true
	e, err := f.StartExec(ctx, "s", r)
	if err != nil {
		t.Fatal(err)
	}
	leave := func(input string) {
		t.Helper()
		gone, hangUp := context.WithCancel(ctx)
		c := &caller{ctx: gone, says: strings.NewReader(input)}
		ended := make(chan error, 1)
		go func() { _, err := f.Attach(gone, "s", e.ID, AttachOptions{}, IO{Stdin: c}); ended <- err }()
		eventually(t, "its input is taken", func() bool { return c.reads.Load() > 0 })
		hangUp()
		errtest.Want(t, within(t, "the end of the call", ended), sbxerr.Canceled)
	}
	long := strings.Repeat("0123456789abcde\n", 64<<10)
	leave(long) // more than a pipe holds
	for range 20 {
		leave("lost")
	}
	eventually(t, "nobody writes for them", func() bool { return strings.Count(stacks(), ").feed(") == 0 })

	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := f.Attach(ctx, "s", e.ID, AttachOptions{}, IO{Stdin: strings.NewReader("the next one's"), Stdout: &out})
		done <- err
	}()
	f.engine.poke(t, id)
	if err := within(t, "the end of the command", done); err != nil {
		t.Fatal(err)
	}
	got, ok := strings.CutSuffix(out.String(), "the next one's")
	if !ok || got == "" || !strings.HasPrefix(long, got) {
		t.Errorf("the command got %d bytes, next one's last: %v, beginning with the first one's: %v", out.Len(), ok, strings.HasPrefix(long, got))
	}
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:goruntime.Stack(buf, true)])
}
