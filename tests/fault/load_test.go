package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/harness"
)

// tally counts what many calls came to, by code; "" is success.
type tally struct {
	mu     sync.Mutex
	counts map[sbxerr.Code]int
}

func (c *tally) add(err error) {
	var e *api.Error
	code := sbxerr.Code("")
	switch {
	case errors.As(err, &e):
		code = e.Code
	case err != nil:
		code = sbxerr.Unknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[sbxerr.Code]int{}
	}
	c.counts[code]++
}

// check fails t if calls came to anything but success and the given codes.
func (c *tally) check(t *testing.T, what string, total int, allowed ...sbxerr.Code) {
	t.Helper()
	rest := total - c.counts[""]
	for _, code := range allowed {
		rest -= c.counts[code]
	}
	if rest != 0 || c.counts[""] == 0 {
		t.Errorf("%s: %v of %d calls, want success and %v only", what, c.counts, total, allowed)
	}
	t.Logf("%s: %v", what, c.counts)
}

const atOnce = 300

// everyone makes many calls at once and waits for their end.
func everyone(n int, call func(i int) error) *tally {
	var wg sync.WaitGroup
	var c tally
	for i := range n {
		wg.Go(func() { c.add(call(i)) })
	}
	wg.Wait()
	return &c
}

// Many requests at once are served or refused with a code, up to a bound that
// the configuration names, and leave nothing (F36, F37).
func TestManyAtOnce(t *testing.T) {
	d := harness.New(t)
	const most = 24
	d.Settings = "ids: {blocks: 64}\nsandboxes: {max: 24, max_creating: 4, queue: 16}\n"
	d.Launch(t)
	client := api.New(api.Options{Socket: d.Socket, Reconnect: -1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	before := d.OpenFiles(t)
	creates := everyone(atOnce, func(i int) error {
		_, err := client.Create(ctx, &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{Name: fmt.Sprint("n", i)}})
		return err
	})
	creates.check(t, "creates", atOnce, sbxerr.Busy)
	if creates.counts[sbxerr.Busy] == 0 {
		t.Error("no create was refused: the bound was not met")
	}
	l := list(t, d)
	if len(l) != creates.counts[""] {
		t.Errorf("%d sandboxes of %d creates that succeeded", len(l), creates.counts[""])
	}
	execs := everyone(atOnce, func(int) error {
		r, err := client.Output(ctx, l[0].ID, &caissonv1.ExecSpec{Args: []string{"echo", "x"}}, nil)
		if err == nil && string(r.GetStdout()) != "x\n" {
			t.Errorf("printed %q", r.GetStdout())
		}
		return err
	})
	execs.check(t, "execs", atOnce, sbxerr.Busy)
	removes := everyone(atOnce, func(i int) error {
		_, err := client.Remove(ctx, &caissonv1.RemoveRequest{Ref: l[i%len(l)].ID, Force: true})
		return err
	})
	removes.check(t, "removes", atOnce, sbxerr.NotFound)
	checkSound(t, d)
	client.Close()
	// One user namespace for each block of ids that was in use stays open.
	await(t, "descriptors as before", func() bool { return d.OpenFiles(t) <= before+most+8 })
	d.Stop(t)
	d.CheckNothingLeft(t)
}

// The same key at the same time is the same sandbox (F47).
func TestSameKeyAtOnce(t *testing.T) {
	client := api.Dial(daemon.Socket)
	defer client.Close()
	var mu sync.Mutex
	ids := map[string]bool{}
	everyone(20, func(int) error {
		s, err := client.Create(t.Context(), &caissonv1.CreateRequest{IdempotencyKey: "same"})
		mu.Lock()
		defer mu.Unlock()
		ids[s.GetId()] = true
		return err
	}).check(t, "creates", 20)
	if len(ids) != 1 {
		t.Errorf("sandboxes %v, want one", ids)
	}
	for id := range ids {
		daemon.Run(t, "rm", "--force", id)
	}
	checkSound(t, daemon)
}

// Callers that send slowly, or nothing, are dropped, and hold up nobody (F48).
func TestSlowCallers(t *testing.T) {
	t.Parallel() // it waits most of the time
	const callers = 200
	conns := []net.Conn{}
	for i := range callers {
		conn, err := net.Dial("unix", daemon.Socket)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /caisson.v1.SandboxService/List HTTP/1.1\r\nHost: x\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	start := time.Now()
	if out := daemon.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
		t.Errorf("printed %q", out)
	}
	t.Logf("a run beside %d slow callers took %s", callers, time.Since(start))
	for i, conn := range conns { // all are dropped by the daemon: the read ends
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("caller %d was not dropped: %v", i, err)
		}
	}
}

// A caller that goes away in any phase of its call leaves nothing (F46).
func TestLostCallers(t *testing.T) {
	for _, phase := range []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		for _, args := range [][]string{{"run", "--", "sleep", "1000"}, {"create", "--name", "lost", "--ensure"}} {
			ctx, cancel := context.WithCancel(t.Context())
			cmd := daemon.Command(ctx, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(phase) // into one phase or another
			cancel()
			_ = cmd.Wait() // it was killed
		}
	}
	await(t, "end of the runs", func() bool {
		for _, s := range list(t, daemon) {
			if s.Name != "lost" {
				return false
			}
		}
		return true
	})
	for _, s := range list(t, daemon) {
		daemon.Run(t, "rm", "--force", s.ID)
	}
	checkSound(t, daemon)
}

// Terminals that hang up or are resized without end leave nothing (F50).
func TestTerminals(t *testing.T) {
	id := strings.TrimSpace(daemon.Run(t, "create").Stdout)
	client := api.Dial(daemon.Socket)
	defer client.Close()
	before := daemon.OpenFiles(t)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		sizes := make(chan api.Size)
		go func() {
			defer cancel() // the terminal is hung up
			for i := range uint16(200) {
				select {
				case sizes <- api.Size{Rows: 10 + i, Cols: 20 + i}:
				case <-ctx.Done():
					return
				}
			}
		}()
		var out bytes.Buffer
		spec := &caissonv1.ExecSpec{Args: []string{"sleep", "1000"}, Tty: &caissonv1.WinSize{Rows: 1, Cols: 1}}
		if _, err := client.Exec(ctx, id, spec, api.IO{Stdout: &out, Resizes: sizes}); err == nil {
			t.Error("a terminal that was hung up ended with success")
		}
	}
	await(t, "end of the commands", func() bool { return !strings.Contains(daemon.Run(t, "ps", id).Stdout, "running") })
	client.Close()
	await(t, "descriptors as before", func() bool { return daemon.OpenFiles(t) <= before+8 })
	daemon.Run(t, "rm", "--force", id)
	checkSound(t, daemon)
}
