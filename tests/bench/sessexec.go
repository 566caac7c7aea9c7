package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// execRounds is how many short commands stand for one cold run: they are cheap,
// and a p99 needs many.
const execRounds = 10

// execAPI measures the unary Exec of the Go client.
func (s *suite) execAPI() {
	site := s.plainSite()
	box := site.create()
	defer site.mustRemove(box.Id)
	series := site.execSeries(box.Id, s.rounds*execRounds)
	sec := Section{Name: "exec", Runs: []Run{{Name: "caisson", What: "exec /bin/true in a live sandbox, over the API", Took: series.total.summary()}}, Trace: series.trace()}
	s.r.Sessions = append(s.r.Sessions, sec)
	s.r.target(atMost("exec over the API, p50", series.total.summary().P50, 1.2, "ms"))
	s.r.target(atMost("exec over the API, p99", series.total.summary().P99, 4, "ms"))
}

type times []time.Duration

func (t times) summary() *Summary { sum := summarize(t); return &sum }

// execSeries is where the time of short commands went: command is the daemon's
// clock from the request for a start to the end that PID 1 told, call is what an
// empty call of the API takes, and bare what the same program takes that this
// process starts on the host.
type execSeries struct{ total, command, call, rest, bare times }

func (s *site) execSeries(id string, rounds int) execSeries {
	var e execSeries
	for i := range rounds + warmRounds {
		begin := time.Now()
		if _, err := s.Info(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		call := time.Since(begin)
		bare, err := bareTrue()
		if err != nil {
			s.t.Fatal(err)
		}
		begin = time.Now()
		result, err := s.execTrue(s.t.Context(), id)
		took := time.Since(begin)
		if err != nil {
			s.t.Fatal(err)
		}
		if i < warmRounds {
			continue
		}
		command := result.GetDuration().AsDuration()
		e.total, e.command = append(e.total, took), append(e.command, command)
		e.call, e.rest, e.bare = append(e.call, call), append(e.rest, max(0, took-command)), append(e.bare, bare)
	}
	return e
}

// bareTrue starts the program of the image base on the host and waits for its end.
func bareTrue() (time.Duration, error) {
	begin := time.Now()
	pid, err := syscall.ForkExec(busybox, []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	return time.Since(begin), err
}

// warmRounds are not counted: connections and caches of both sides fill.
const warmRounds = 20

func (e execSeries) trace() []Stage {
	return []Stage{
		{"command: started, ended, told", *e.command.summary()},
		{"the rest: call, record, result", *e.rest.summary()},
		{"for comparison: the call Stats", *e.call.summary()},
		{"for comparison: the same true on the host", *e.bare.summary()},
	}
}

// execCLI measures the whole process of caisson exec, beside the exec of others.
func (s *suite) execCLI() {
	st := s.plain()
	site := s.plainSite()
	box := site.create()
	defer site.mustRemove(box.Id)
	all := []contender{
		{name: "caisson", what: "caisson exec -- true", command: func(int) *exec.Cmd { return st.daemon.Command(s.t.Context(), "exec", box.Id, "--", "true") }},
		{name: "version", what: "caisson version: the client alone", command: func(int) *exec.Cmd { return st.daemon.Command(s.t.Context(), "version") }},
		st.ctrExec(), st.runcExec(), st.podmanExec(), st.dockerExec(),
	}
	runs := st.sideBySide(all, s.rounds, nil)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "exec-cli", Runs: runs})
	s.r.target(atMost("caisson exec, whole process, p50", runs[0].Took.P50, 6, "ms"))
	s.r.targetRatio("caisson exec, to docker exec", runs, "docker", 0.1)
}

// runcExec is the floor of those that start a runtime for each command.
func (s *stand) runcExec() contender {
	c := contender{name: "runc", what: "runc exec in a container of a ready bundle"}
	runc, bundle, root := harness.Bin(s.t, "runc"), filepath.Join(s.scratch, "bundle"), filepath.Join(s.scratch, "runc-exec")
	if err := writeBundle(runc, bundle, "/bin/sleep", "100000"); err != nil {
		c.skipped = err.Error()
		return c
	}
	if err := exec.Command(runc, "--root", root, "run", "--detach", "--bundle", bundle, "caisson-benchexec").Run(); err != nil { // it keeps our streams: they must not be pipes
		c.skipped = err.Error()
		return c
	}
	s.t.Cleanup(func() {
		if _, err := timed(exec.Command(runc, "--root", root, "delete", "--force", "caisson-benchexec")); err != nil {
			s.t.Error(err)
		}
	})
	c.command = func(int) *exec.Cmd {
		return exec.Command(runc, "--root", root, "exec", "caisson-benchexec", "/bin/true")
	}
	return c
}

func (s *stand) podmanExec() contender {
	c := s.podman()
	c.what = "podman exec"
	if c.skipped != "" {
		return c
	}
	args := c.command(0).Args
	verb := slices.Index(args, "run") // run --rm OPTIONS… /bin/true
	global := args[1:verb]
	start := append([]string{"run", "--detach", "--name", "benchexec"}, args[verb+2:len(args)-1]...)
	podman := func(args ...string) *exec.Cmd {
		return exec.Command("podman", append(global[:len(global):len(global)], args...)...)
	}
	if _, err := timed(podman(append(start, "/bin/sleep", "100000")...)); err != nil {
		c.skipped = err.Error()
	}
	s.t.Cleanup(func() {
		if _, err := timed(podman("rm", "--force", "--ignore", "--time", "0", "benchexec")); err != nil {
			s.t.Error(err)
		}
	})
	c.command = func(int) *exec.Cmd { return podman("exec", "benchexec", "/bin/true") }
	return c
}

func (s *stand) dockerExec() contender {
	c := s.docker()
	c.what = "docker exec"
	if c.skipped != "" {
		return c
	}
	name := filepath.Base(s.scratch)
	if _, err := timed(exec.Command("docker", "run", "--rm", "--detach", "--network", "none", "--name", name, "caisson-bench", "/bin/sleep", "100000")); err != nil {
		c.skipped = err.Error()
		return c
	}
	s.t.Cleanup(func() {
		if _, err := timed(exec.Command("docker", "rm", "--force", name)); err != nil {
			s.t.Error(err)
		}
	})
	c.command = func(int) *exec.Cmd { return exec.Command("docker", "exec", name, "/bin/true") }
	return c
}
