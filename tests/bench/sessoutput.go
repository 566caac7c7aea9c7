package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// output measures a command that writes without end, to a client that takes all and to one
// that takes nothing, and a command that reads without end.
func (s *suite) output() {
	site := s.plainSite()
	box := site.create()
	defer site.mustRemove(box.Id)
	var rates, runs, inputs []float64
	for range outputRounds {
		rates = append(rates, site.deliver(box.Id))
		runs = append(runs, site.deliverToRun())
		inputs = append(inputs, site.feed(box.Id))
	}
	best, mid := sortedEnds(rates)
	_, run := sortedEnds(runs)
	_, input := sortedEnds(inputs)
	cost := max(site.stalled(box.Id, 0), site.stalled(box.Id, stopAfter))
	s.r.Sessions = append(s.r.Sessions, Section{Name: "output", Figures: []Figure{
		{"delivered to a client that reads, median", mid, "GB/s"}, {"the best of the rounds", best, "GB/s"},
		{"delivered to caisson run, median", run, "GB/s"},
		{"taken from a client that writes, median", input, "GB/s"},
		{"the daemon's memory for a client that does not read", cost, "MB"},
	}})
	s.r.target(atLeast("output to a client that reads", mid, 1, "GB/s"))
	s.r.target(atLeast("output of caisson run", run, 1.5, "GB/s"))
	s.r.target(atLeast("input from a client that writes", input, 1, "GB/s"))
	s.r.target(atMost("memory for a client that does not read", cost, 1, "MB"))
}

const (
	outputRounds = 5
	outputMiB    = 128     // what is kept of one stream
	longMiB      = 1024    // of output to caisson run, and of input
	unreadMiB    = 128     // likewise
	stopAfter    = 8 << 20 // bytes
)

func writing(mib int, limit int64) *caissonv1.ExecSpec {
	return &caissonv1.ExecSpec{Args: []string{"dd", "if=/dev/zero", "bs=1M", fmt.Sprintf("count=%d", mib)}, OutputLimitBytes: &limit}
}

// deliver returns GB (a thousand million bytes) a second.
func (s *site) deliver(id string) float64 {
	var arrived counter
	begin := time.Now()
	_, err := s.Exec(s.t.Context(), id, writing(outputMiB, outputMiB<<20), api.IO{Stdout: &arrived})
	took := time.Since(begin)
	if err != nil || arrived != outputMiB<<20 {
		s.t.Fatalf("%d bytes arrived of %d: %v", arrived, outputMiB<<20, err)
	}
	return round(float64(arrived) / 1e9 / took.Seconds())
}

// deliverToRun is deliver to the command line, whole process.
func (s *site) deliverToRun() float64 {
	begin := time.Now()
	cmd := s.daemon.Command(s.t.Context(), "run", "--", "dd", "if=/dev/zero", "bs=1M", fmt.Sprintf("count=%d", longMiB))
	if err := cmd.Run(); err != nil { // its output goes to /dev/null
		s.t.Fatal(err)
	}
	return round(float64(longMiB<<20) / 1e9 / time.Since(begin).Seconds())
}

// feed returns GB a second into a command that reads all.
func (s *site) feed(id string) float64 {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		s.t.Fatal(err)
	}
	defer zeros.Close()
	begin := time.Now()
	spec := &caissonv1.ExecSpec{Args: []string{"sh", "-c", "cat > /dev/null"}, Stdin: true}
	if _, err := s.Exec(s.t.Context(), id, spec, api.IO{Stdin: io.LimitReader(zeros, longMiB<<20)}); err != nil {
		s.t.Fatal(err)
	}
	return round(float64(longMiB<<20) / 1e9 / time.Since(begin).Seconds())
}

// stalled returns by how much the daemon grows while a client does not read,
// after it has read some bytes.
func (s *site) stalled(id string, first int64) float64 {
	time.Sleep(settle)
	before := memoryOf(s.t, s.daemon.PID()).PSS
	ctx, cancel := context.WithCancel(s.t.Context())
	r, w := io.Pipe()
	go func() { _, _ = io.CopyN(io.Discard, r, first) }() // and then nobody reads
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Exec(ctx, id, writing(unreadMiB, unreadMiB<<20), api.IO{Stdout: w}) // it is cancelled
	}()
	time.Sleep(settle)
	after := memoryOf(s.t, s.daemon.PID()).PSS
	cancel()
	_ = r.Close()
	<-done
	return round(max(0, after-before))
}
