package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// suite is what the sections share. Daemons are started when the first section
// needs them.
type suite struct {
	t      *driver
	r      *Report
	rounds int
	length time.Duration // of the sustained load

	stand_ *stand
	pooled *site
	fleet  *site
}

// site is a daemon and a client of its API.
type site struct {
	t      *driver
	daemon *harness.Daemon
	flags  []string
	*api.Client
}

func newSite(t *driver, d *harness.Daemon, flags ...string) *site {
	s := &site{t: t, daemon: d, flags: flags, Client: api.Dial(d.Socket)}
	t.Cleanup(s.Close)
	return s
}

// startSite starts a daemon with the given configuration.
func startSite(t *driver, settings string) *site {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "config.yaml")
	if !strings.Contains(settings, "warm:") {
		settings += "warm: 0\n"
	}
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return newSite(t, harness.Start(t, "--config", file), "--config", file)
}

// plain is the daemon without a pool, with the other contenders beside it.
func (s *suite) plain() *stand {
	if s.stand_ == nil {
		s.stand_ = newStand(s.t, harness.Start(s.t))
		time.Sleep(settle)
	}
	return s.stand_
}

// plainSite is plain with a client.
func (s *suite) plainSite() *site { return newSite(s.t, s.plain().daemon) }

const poolSize = 20

// withPool is the daemon that keeps sandboxes ready.
func (s *suite) withPool() *site {
	if s.pooled == nil {
		s.pooled = startSite(s.t, fmt.Sprintf("ids: {blocks: 192}\npools: [{size: %d}]\n", poolSize))
	}
	return s.pooled
}

// byDefault is a daemon without a configuration, as a fresh installation has it.
func (s *suite) byDefault() *site { return startSite(s.t, "# the default of warm:\n") }

// create makes a sandbox that must come to life.
func (s *site) create() *caissonv1.Sandbox {
	box, err := s.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: &caissonv1.SandboxSpec{}})
	if err != nil {
		s.t.Fatal(err)
	}
	return box
}

// execTrue runs the command that does nothing.
func (s *site) execTrue(ctx context.Context, id string) (*caissonv1.Result, error) {
	out, err := s.Output(ctx, id, &caissonv1.ExecSpec{Args: []string{"/bin/true"}}, nil)
	if err != nil {
		return nil, err
	}
	if code := out.GetResult().GetExitCode(); code != 0 {
		return nil, fmt.Errorf("true ended with %d in sandbox %s", code, id)
	}
	return out.GetResult(), nil
}

func (s *site) remove(ctx context.Context, id string) error {
	_, err := s.Remove(ctx, &caissonv1.RemoveRequest{Ref: id, Force: true})
	return err
}

// mustRemove removes a sandbox of the measurement.
func (s *site) mustRemove(id string) {
	if err := s.remove(s.t.Context(), id); err != nil {
		s.t.Fatal(err)
	}
}

// pool returns what the daemon says of its pool.
func (s *site) pool() *caissonv1.PoolStats {
	st, err := s.Info(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(st.Pools) != 1 {
		s.t.Fatalf("the daemon has %d pools", len(st.Pools))
	}
	return st.Pools[0]
}

// awaitFull returns when the pool is full and nothing is made any more, and how
// long that took.
func (s *site) awaitFull() time.Duration {
	start := time.Now()
	for deadline := start.Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) { // nothing announces it
		if p := s.pool(); p.Ready >= p.Size && p.Filling == 0 {
			return time.Since(start)
		}
	}
	s.t.Fatalf("the pool is not full: %v", s.pool())
	return 0
}
