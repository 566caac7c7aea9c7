package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// starts measures how long a daemon takes until its socket answers: with empty
// directories, which includes the import of the image base, and again with
// those that it left.
func starts(t *driver, rounds int) (first, again []time.Duration) {
	for range rounds {
		d := harness.New(t)
		for _, into := range []*[]time.Duration{&first, &again} {
			ready := make(chan time.Duration, 1)
			go func() { ready <- untilReady(d.Socket) }()
			d.Launch(t)
			*into = append(*into, <-ready)
			d.Stop(t)
		}
		d.CheckNothingLeft(t)
	}
	return first, again
}

// untilReady looks at the socket once a millisecond. The daemon listens when
// it can serve.
func untilReady(socket string) time.Duration {
	start := time.Now()
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			took := time.Since(start)
			_ = c.Close()
			return took
		}
		time.Sleep(time.Millisecond) // nothing announces the socket
	}
}

// cold is where the time of cold runs went, by stage, and how long each
// sandbox then took to vanish, while its caller already had the result.
type cold struct {
	stages   map[string][]time.Duration
	names    []string // in order
	total    []time.Duration
	command  []time.Duration
	teardown []time.Duration
}

func (s *stand) coldRuns(rounds int) cold {
	c := cold{stages: map[string][]time.Duration{}}
	for range rounds {
		r := s.daemon.Run(s.t, "run", "--json", "--trace", "--", "true")
		returned := time.Now()
		s.awaitGone()
		c.teardown = append(c.teardown, time.Since(returned))
		c.add(s.t, r)
	}
	return c
}

func (c *cold) add(t *driver, r harness.Result) {
	var result struct {
		Duration harness.Duration
		Stages   []struct {
			Name     string
			Duration harness.Duration
		}
	}
	r.JSONIn(t, "result", &result)
	var total time.Duration
	for _, st := range result.Stages {
		total += st.Duration.Duration
		c.note(st.Name, st.Duration.Duration)
	}
	c.total = append(c.total, total)
	c.command = append(c.command, result.Duration.Duration)
}

// note adds what a stage took.
func (c *cold) note(stage string, d time.Duration) {
	if !slices.Contains(c.names, stage) {
		c.names = append(c.names, stage)
	}
	c.stages[stage] = append(c.stages[stage], d)
}

// awaitGone returns when no sandbox has a claim any more: that is the last
// thing of a sandbox to be removed.
func (s *stand) awaitGone() {
	dir := filepath.Join(s.daemon.State, "sandboxes")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) { // nothing announces it
		entries, err := os.ReadDir(dir)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(entries) == 0 {
			return
		}
	}
	s.t.Fatalf("sandboxes are left in %s", dir)
}

// backToBack tells what one of several runs in a row takes, each started as
// soon as the one before has returned.
func (s *stand) backToBack(c contender, rounds int) time.Duration {
	start := time.Now()
	for i := range rounds {
		if _, err := timed(c.command(i)); err != nil {
			s.t.Fatal(err)
		}
	}
	took := time.Since(start) / time.Duration(rounds)
	s.daemon.AwaitNoSandbox(s.t)
	return took
}

// Throughput is how much output passes, in MB (a million bytes) a second.
type Throughput struct {
	Absorbed  float64 `json:"absorbed_mb_s"`  // a command that writes past its limit, of which head and tail are kept
	Delivered float64 `json:"delivered_mb_s"` // a command whose whole output reaches the client
}

const (
	absorbedMiB  = 1024
	deliveredMiB = 128 // what is kept of one stream
)

func (s *stand) throughput() Throughput {
	var past struct {
		Duration    harness.Duration
		StdoutBytes int64 `json:"stdout_bytes"`
	}
	write := func(mib int) []string {
		return []string{"--", "dd", "if=/dev/zero", "bs=1M", "count=" + strconv.Itoa(mib)}
	}
	s.daemon.Run(s.t, append([]string{"run", "--json", "--output-limit", "4K"}, write(absorbedMiB)...)...).JSONIn(s.t, "result", &past)
	if past.StdoutBytes != absorbedMiB<<20 {
		s.t.Fatalf("%d bytes were counted, %d written", past.StdoutBytes, absorbedMiB<<20)
	}
	var arrived counter
	cmd := s.daemon.Command(s.t.Context(), append([]string{"run", "--output-limit", strconv.Itoa(deliveredMiB) + "M"}, write(deliveredMiB)...)...)
	cmd.Stdout = &arrived
	start := time.Now()
	if err := cmd.Run(); err != nil || arrived != deliveredMiB<<20 {
		s.t.Fatalf("%d bytes arrived of %d: %v", arrived, deliveredMiB<<20, err)
	}
	took := time.Since(start)
	s.daemon.AwaitNoSandbox(s.t)
	return Throughput{
		Absorbed:  round(float64(past.StdoutBytes) / 1e3 / past.Duration.Milliseconds()),
		Delivered: round(float64(arrived) / 1e6 / took.Seconds()),
	}
}

// counter counts what is written to it. It hides that nothing is kept, so
// that the data pass through this process as through any reader.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

var _ io.Writer = (*counter)(nil)

// FromHost is the making of an image of the host's development tools.
type FromHost struct {
	Packages []string `json:"packages"`
	Seconds  float64  `json:"seconds"`
	Bytes    int64    `json:"bytes"`
	Entries  int64    `json:"entries"`
}

// fromHost takes what is installed of the tools that an agent needs.
func (s *stand) fromHost() FromHost {
	var f FromHost
	for _, p := range []string{"git", "python3", "perl", "gcc", "libc6-dev", "make"} {
		out, err := exec.Command("dpkg-query", "--show", "--showformat", "${db:Status-Status}", p).Output()
		if err == nil && string(out) == "installed" {
			f.Packages = append(f.Packages, p)
		}
	}
	args := []string{"image", "from-host", "--json", "dev"}
	for _, p := range f.Packages {
		args = append(args, "--package", p)
	}
	imported := s.daemon.Run(s.t, args...)
	f.Seconds = round(imported.Duration.Seconds())
	var made struct {
		Report struct{ Bytes, Entries int64 }
	}
	imported.JSON(s.t, &made)
	f.Bytes, f.Entries = made.Report.Bytes, made.Report.Entries
	s.daemon.Run(s.t, "image", "rm", "dev")
	return f
}
