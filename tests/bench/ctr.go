package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// stock is a containerd as it comes, made of the daemon's programs and with its base
// image. The daemon's own is not that: it is configured and started to be faster.
type stock struct {
	ctr, address, bin string
	namespace         string // the daemon's, so that its groups lie where they are looked for in the end
	runcRoot          string
}

// stock starts it once.
func (s *stand) stock() (*stock, error) {
	if s.stock_ != nil {
		return s.stock_, nil
	}
	ctr, err := buildCtr()
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp(harness.StateParent, "stock") // where the daemon's state is
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() {
		if err := os.RemoveAll(state); err != nil {
			s.t.Error(err)
		}
	})
	st := &stock{ctr: ctr, address: filepath.Join(state, "c.sock"), bin: filepath.Dir(harness.Bin(s.t, "containerd")), runcRoot: filepath.Join(s.scratch, "ctr-runc"), namespace: s.daemon.Instance()}
	if err := st.start(s.t, filepath.Join(s.scratch, "stock"), state); err != nil {
		return nil, err
	}
	if err := st.loadBase(s); err != nil {
		return nil, err
	}
	s.stock_ = st
	return st, nil
}

// stockConfig differs from containerd's defaults only in the places of its files.
const stockConfig = `version = 3
root = %q
state = %q
imports = []
[grpc]
  address = %q
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = %q
`

func (st *stock) start(t *driver, root, state string) error {
	config := filepath.Join(state, "config.toml")
	text := fmt.Sprintf(stockConfig, root, filepath.Join(state, "state"), st.address, filepath.Join(state, "s"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(st.bin, "containerd"), "--config", config, "--log-level", "error")
	cmd.Env = []string{"PATH=" + st.bin}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Error("stock containerd:", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := timed(exec.CommandContext(ctx, st.ctr, "--address", st.address, "version"))
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // it does not say when it listens
	}
}

// loadBase takes the image over from the daemon.
func (st *stock) loadBase(s *stand) error {
	file := filepath.Join(s.scratch, "base.tar")
	_, err := timed(exec.Command(st.ctr, "--address", filepath.Join(s.daemon.State, "containerd", "containerd.sock"), "--namespace", s.daemon.Instance(),
		"image", "export", "--local", file, "base"))
	if err == nil {
		_, err = timed(st.command("image", "import", "--local", "--index-name", "base", file))
	}
	return err
}

func (st *stock) command(args ...string) *exec.Cmd {
	return exec.Command(st.ctr, append([]string{"--address", st.address, "--namespace", st.namespace}, args...)...)
}

// run is ctr run, with the flags, of argv in the base image.
func (st *stock) run(id string, flags []string, argv ...string) *exec.Cmd {
	args := append([]string{"run", "--runc-binary", filepath.Join(st.bin, "runc"), "--runc-root", st.runcRoot}, flags...)
	return st.command(append(append(args, "base", id), argv...)...)
}

func (s *stand) ctr() contender {
	c := contender{name: "ctr", what: "ctr run --rm with the same programs and image, in a containerd as it comes; no user namespace, limits or filter"}
	st, err := s.stock()
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	c.command = func(round int) *exec.Cmd {
		return st.run(fmt.Sprintf("bench%d", round+1), []string{"--rm"}, "/bin/true")
	}
	return c
}

func (s *stand) ctrExec() contender {
	c := contender{name: "ctr", what: "ctr task exec with the same programs and image, in a containerd as it comes"}
	st, err := s.stock()
	if err == nil {
		_, err = timed(st.run("benchexec", []string{"--detach"}, "/bin/sleep", "100000"))
	}
	if err != nil {
		c.skipped = err.Error()
		return c
	}
	s.t.Cleanup(func() {
		for _, args := range [][]string{{"task", "delete", "--force", "benchexec"}, {"container", "delete", "benchexec"}} {
			if _, err := timed(st.command(args...)); err != nil {
				s.t.Error(err)
			}
		}
	})
	c.command = func(round int) *exec.Cmd {
		return st.command("task", "exec", "--exec-id", fmt.Sprintf("e%d", round+1), "benchexec", "/bin/true")
	}
	return c
}

// buildCtr builds containerd's client at the version of the daemon's engine.
func buildCtr() (string, error) {
	path, err := filepath.Abs("build/ctr")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "no_cri no_tracing no_btrfs no_devmapper no_zfs netgo osusergo urfave_cli_no_docs",
		"-o", path, "github.com/containerd/containerd/v2/cmd/ctr")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ctr: %w: %s", err, lastLine(string(out)))
	}
	return path, rewrite(path)
}

// rewrite writes a program again in one piece, as make does with the daemon's: else it
// would start more slowly than those.
func rewrite(program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	whole := program + ".whole"
	if err := os.WriteFile(whole, content, 0o755); err != nil {
		return err
	}
	return os.Rename(whole, program)
}
