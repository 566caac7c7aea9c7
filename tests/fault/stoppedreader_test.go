package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// stoppedReaders is how many sandboxes have a caller that stopped reading.
const stoppedReaders = 24

// stopAfter is how many bytes a caller reads before it stops, enough how many before it
// leaves: more than is read ahead of it.
const stopAfter, enough = 64 << 10, 8 << 20

var errEnough = errors.New("the caller has enough")

// stopping is a caller that reads the numbers from 1 on, and stops in between.
type stopping struct {
	stopped, goOn chan struct{}
	taken, last   int
	part          []byte // of a line
}

func (s *stopping) Write(p []byte) (int, error) {
	before := s.taken
	s.taken += len(p)
	if before < stopAfter && s.taken >= stopAfter {
		close(s.stopped)
		<-s.goOn
	}
	lines := bytes.SplitAfter(append(s.part, p...), []byte("\n"))
	s.part = bytes.Clone(lines[len(lines)-1])
	for _, line := range lines[:len(lines)-1] {
		if s.last++; string(line) != strconv.Itoa(s.last)+"\n" {
			return 0, fmt.Errorf("line %d is %q", s.last, line)
		}
	}
	if s.taken >= enough {
		return 0, errEnough
	}
	return len(p), nil
}

// Commands that write without end wait for callers that stopped reading: they cost the
// daemon nothing, others are served, and a time limit, a removal and a caller that leaves
// end them. A caller that goes on gets every byte in order.
func TestStoppedReaders(t *testing.T) {
	d := harness.New(t)
	d.Settings = fmt.Sprintf("ids: {blocks: %d}\nsandboxes: {max: %d}\n", 2*stoppedReaders, stoppedReaders+8)
	d.Launch(t)
	client := api.New(api.Options{Socket: d.Socket, Reconnect: -1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	memory := int64(64 << 20)
	readers := make([]*stopping, stoppedReaders)
	ends := make([]chan error, stoppedReaders)
	for i := range readers {
		readers[i], ends[i] = &stopping{stopped: make(chan struct{}), goOn: make(chan struct{})}, make(chan error, 1)
		spec := &caissonv1.RunSpec{
			Sandbox: &caissonv1.SandboxSpec{Name: fmt.Sprint("stopped", i), Limits: &caissonv1.Limits{MemoryBytes: &memory}},
			Exec:    &caissonv1.ExecSpec{Args: []string{"seq", "1000000000000"}},
		}
		if i%3 == 1 {
			spec.Exec.Timeout = durationpb.New(8 * time.Second)
		}
		go func() {
			r, err := client.Run(ctx, spec, api.IO{Stdout: readers[i]})
			if err == nil {
				err = errors.New(r.Reason)
			}
			ends[i] <- err
		}()
	}
	for i, r := range readers {
		select {
		case <-r.stopped:
		case err := <-ends[i]:
			t.Fatalf("run %d: %v", i, err)
		}
	}
	await(t, "an idle daemon", func() bool {
		before := harness.CPUTime(t, d.PID())
		time.Sleep(time.Second) // in which it would work
		took := harness.CPUTime(t, d.PID()) - before
		t.Logf("the daemon takes %v a second", took)
		return took < 200*time.Millisecond // one of the commands alone would cost it more
	})
	start := time.Now()
	if out := d.Run(t, "run", "--", "echo", "served").Stdout; out != "served\n" {
		t.Errorf("another run printed %q", out)
	}
	t.Logf("another run took %v", time.Since(start))
	await(t, "the time limits", func() bool {
		for _, s := range list(t, d) {
			if i, _ := strconv.Atoi(strings.TrimPrefix(s.Name, "stopped")); i%3 == 1 && s.State == "running" {
				return false
			}
		}
		return true
	})
	for i := 2; i < stoppedReaders; i += 3 {
		d.Run(t, "rm", "--force", fmt.Sprint("stopped", i))
	}
	for i, r := range readers {
		close(r.goOn)
		err := fmt.Sprint(<-ends[i])
		if want := []string{errEnough.Error(), "timeout", "canceled"}[i%3]; !strings.HasSuffix(err, want) || i%3 == 0 && r.taken < enough {
			t.Errorf("run %d: %q after %d bytes, want %q", i, err, r.taken, want)
		}
	}
	d.AwaitNoSandbox(t)
	d.Stop(t)
	d.CheckNothingLeft(t)
}
