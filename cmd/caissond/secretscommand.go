package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/config"
)

// commandTimeout bounds the run of a command that prints a secret.
const commandTimeout = 10 * time.Second

// commandSecrets holds what commands printed, each in a file in memory that the daemon never
// reads or maps.
type commandSecrets struct {
	timeout time.Duration

	mu     sync.Mutex
	files  map[string]*os.File // by command line
	failed map[string]error    // by command line: what the last run came to
}

// printed holds the secrets that commands printed.
var printed = commandSecrets{timeout: commandTimeout}

// run runs all commands of c. An error leaves the values of the run before.
func (p *commandSecrets) run(ctx context.Context, c config.Config) error {
	next, failed := map[string]*os.File{}, map[string]error{}
	var errs []error
	sources := c.SecretSources()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		s := sources[name]
		if s.Kind != config.SecretCommand || next[s.From] != nil || failed[s.From] != nil {
			continue
		}
		f, err := runForSecret(ctx, s.From, p.timeout)
		if err != nil {
			failed[s.From] = err
			errs = append(errs, refuseSecret(name, s, err))
			continue
		}
		next[s.From] = f
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = failed
	if len(errs) == 0 {
		p.files, next = next, p.files
	}
	for _, f := range next {
		_ = f.Close() // it is in memory
	}
	return errors.Join(errs...)
}

// replace notes how a run of line ended: f is what it printed.
func (p *commandSecrets) replace(line string, f *os.File, failure error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files, p.failed = map[string]*os.File{}, map[string]error{}
	}
	p.failed[line] = failure
	if failure != nil { // the value before is used
		return
	}
	if before := p.files[line]; before != nil {
		_ = before.Close() // it is in memory
	}
	p.files[line] = f
}

// forget drops what commands printed.
func (p *commandSecrets) forget(is func(line string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line, f := range p.files {
		if is(line) {
			_ = f.Close() // it is in memory
			delete(p.files, line)
		}
	}
	maps.DeleteFunc(p.failed, func(line string, _ error) bool { return is(line) })
}

// failure is why the last run of a command printed no secret.
func (p *commandSecrets) failure(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[line]
}

// open opens what a command printed anew.
func (p *commandSecrets) open(line string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[line]
	if f == nil {
		return nil, fmt.Errorf("command %q has not run", programOf(line))
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// programOf leaves the arguments out, which nobody else need see.
func programOf(line string) string {
	program, _, _ := strings.Cut(line, " ")
	return program
}

// runForSecret runs a command without a shell and returns its output in a file in memory. What
// it writes to its standard error may hold the value, so that is dropped.
func runForSecret(ctx context.Context, line string, timeout time.Duration) (*os.File, error) {
	args := strings.Fields(line)
	fail := func(err error) (*os.File, error) { return nil, fmt.Errorf("command %q %w", args[0], err) }
	if err := checkProgram(args[0]); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fail(err)
	}
	defer unix.Close(pipe[0])
	out := os.NewFile(uintptr(pipe[1]), "pipe")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = "/", []string{"PATH=" + os.Getenv("PATH")}, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	goruntime.LockOSThread() // Pdeathsig is that of the thread
	defer goruntime.UnlockOSThread()
	if err := errors.Join(cmd.Start(), out.Close()); err != nil {
		return fail(fmt.Errorf("does not start: %w", err))
	}
	f, moveErr := moveOutput(ctx, pipe[0])
	if moveErr != nil {
		cancel()
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind, if anything
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("did not end within %s", timeout)
	case moveErr != nil:
		err = moveErr
	case err != nil:
		err = fmt.Errorf("failed: %w", err)
	default:
		err = checkPrinted(f)
	}
	if err == nil {
		return f, nil
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return fail(err)
}

func checkPrinted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkSecretSize(info.Size()); err != nil {
		return fmt.Errorf("printed what %w", err)
	}
	return nil
}

// moveOutput moves all that comes out of a pipe into a file in memory, inside the kernel.
func moveOutput(ctx context.Context, pipe int) (_ *os.File, err error) {
	f, err := newMemoryFile()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	const pause = 50 // milliseconds between looks at ctx
	for size := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}, pause)
		if n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		moved, err := unix.Splice(pipe, nil, int(f.Fd()), nil, mostSecretFile+1, unix.SPLICE_F_NONBLOCK)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		size += moved
		if moved > 0 && size <= mostSecretFile {
			continue
		}
		if size > mostSecretFile {
			return nil, fmt.Errorf("printed what %w", checkSecretSize(size))
		}
		return f, nil
	}
}

// checkProgram refuses a program that others than root could have changed.
func checkProgram(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return errors.New("is no program")
	case !known || owner.Uid != 0 && owner.Uid != uint32(os.Geteuid()):
		return errors.New("belongs to somebody else than root")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("has the mode %04o, by which others than its owner may change it", info.Mode().Perm())
	}
	return nil
}
