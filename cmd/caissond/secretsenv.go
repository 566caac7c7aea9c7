package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

// startVariables holds secrets that were in the daemon's environment, each in a file in memory. They
// are in no memory that the daemon maps, and no child inherits them.
type startVariables struct {
	mu    sync.Mutex
	taken bool
	files map[string]*os.File
	bad   map[string]error // why a variable holds no secret
}

// started holds the secrets that the daemon was started with.
var started startVariables

// take moves the variables that c names out of the environment. Only the first call does: later
// ones would find what children have inherited.
func (v *startVariables) take(c config.Config) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.taken {
		return nil
	}
	v.taken, v.files, v.bad = true, map[string]*os.File{}, map[string]error{}
	var names []string
	for _, s := range c.SecretSources() {
		if s.Kind != config.SecretVariable || v.files[s.From] != nil || v.bad[s.From] != nil {
			continue
		}
		value, ok := os.LookupEnv(s.From)
		if !ok {
			continue
		}
		names = append(names, s.From)
		f, err := hide(value)
		v.files[s.From], v.bad[s.From] = f, errors.Join(err, os.Unsetenv(s.From))
	}
	if len(names) == 0 {
		return nil
	}
	return sbxerr.Wrap(sbxerr.Internal, "caissond.variables", clearEnvironment(names))
}

// open opens the value of a variable anew.
func (v *startVariables) open(name string) (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.files[name]
	switch {
	case v.bad[name] != nil:
		return nil, fmt.Errorf("variable %q %w", name, v.bad[name])
	case f == nil:
		return nil, fmt.Errorf("variable %q was not in the environment when the daemon started", name)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// hide moves value, of a variable, into a file in memory: the string is zero afterwards. That is
// safe for strings of package os alone, which lie on the heap.
func hide(value string) (*os.File, error) {
	b := unsafe.Slice(unsafe.StringData(value), len(value))
	defer clear(b)
	if err := checkSecretSize(int64(len(b))); err != nil {
		return nil, err
	}
	f, err := newMemoryFile()
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// newMemoryFile makes a file that is nowhere but in memory.
func newMemoryFile() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC
	fd, err := unix.MemfdCreate("secret", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("secret", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be kept: %w", err)
	}
	f := os.NewFile(uintptr(fd), "secret")
	if err := f.Chmod(0o400); err != nil {
		return nil, fmt.Errorf("cannot be kept: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// clearEnvironment zeroes the values of variables where the kernel put them, below the stack:
// /proc/PID/environ shows that memory, whatever the process unset.
func clearEnvironment(names []string) error {
	from, size, err := environmentBlock()
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	block := make([]byte, size)
	defer clear(block)
	if _, err := memory.ReadAt(block, from); err != nil {
		return err
	}
	for entry := range bytes.SplitSeq(block, []byte{0}) {
		for _, name := range names {
			if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
				clear(value)
			}
		}
	}
	_, err = memory.WriteAt(block, from)
	return err
}

// environmentBlock is where the kernel put the environment (proc_pid_stat(5)).
func environmentBlock() (from int64, size int, err error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on
	const start = 50 - 3
	if len(fields) < start+2 {
		return 0, 0, fmt.Errorf("/proc/self/stat has %d fields", len(fields))
	}
	var end int64
	if _, err := fmt.Sscan(fields[start]+" "+fields[start+1], &from, &end); err != nil {
		return 0, 0, err
	}
	if from <= 0 || end < from {
		return 0, 0, errors.New("the kernel does not say where the environment is")
	}
	return from, int(end - from), nil
}
