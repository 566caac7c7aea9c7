package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// backend is the kernel interface that a command programs. Rules of one are
// not seen by the other, and both apply.
type backend string

const (
	backendAny    backend = "" // whichever the host's own command is for
	backendNFT    backend = "nft"
	backendLegacy backend = "legacy"
)

// ruleTables is the part of *iptables.IPTables that is used here. Tests keep
// rules in memory.
type ruleTables interface {
	Append(table, chain string, rule ...string) error
	AppendUnique(table, chain string, rule ...string) error
	InsertUnique(table, chain string, position int, rule ...string) error
	Delete(table, chain string, rule ...string) error
	ClearChain(table, chain string) error // makes it where there is none
	DeleteChain(table, chain string) error
	List(table, chain string) ([]string, error)
	ListChains(table string) ([]string, error)
}

// command is iptables or ip6tables.
//
// go-iptables runs one process for each call, on the calling thread, and so in its
// namespace. It takes no context: see bounded. Its processes have the environment
// of this one: see CleanEnvironment. They get no signal when this process dies; one
// that waits for the lock ends after lockWait.
type command struct {
	ruleTables
	path    string // a link, which is not resolved: its name selects the program
	version string
	backend backend
}

// binaryDirs is where the commands are looked for: not along PATH, which
// belongs to whoever started the daemon.
var binaryDirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"}

// lockWait is how many seconds iptables may wait for another one's lock. Zero
// would mean for ever.
var lockWait = 5

// commandTimeout bounds the commands that program or read one family. It is longer
// than lockWait, so that a command itself can say why it waited, and than what they take on a
// host with far more to do than it has processors. It is shorter than a check of the doctor may
// take, which else would leave commands that hang.
var commandTimeout = 30 * time.Second

const (
	remedyMissing = "install iptables 1.6.2 or newer (Debian: apt-get install iptables); caisson doctor says what it finds"
	remedyStuck   = "find out why iptables --version does not end on this host; caisson doctor says whether it does"
	remedyLock    = "another program holds the lock of iptables (/run/xtables.lock): retry when it is done"
)

// environment are the variables that lead iptables, or its loader, to files of
// somebody's choice.
var environment = []string{"XTABLES_LIBDIR", "XTABLES_LOCKFILE", "IPTABLES_LIB_DIR", "IP6TABLES_LIB_DIR"}

// CleanEnvironment removes the variables from the environment of the process that
// would change what iptables programs: it inherits all of them. A program that
// programs rules calls this first.
func CleanEnvironment() error {
	var errs []error
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LD_") || slices.Contains(environment, name) {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	return sbxerr.Wrap(sbxerr.Internal, "netns.environment", errors.Join(errs...))
}

// known keeps the commands that were found, by path, target and lockWait. To ask for a
// version takes two processes, 2 ms.
var known sync.Map

// findCommand returns the command for f. A backend that is not the one of the
// host's own command has a command with its name in its own.
func findCommand(f family, b backend) (command, error) {
	const op = "netns.find_iptables"
	c, err := namedCommand(f, string(f))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return command{}, sbxerr.WithRemedy(sbxerr.NetRule, op, err, remedyStuck)
	case err != nil:
		return command{}, sbxerr.WithRemedy(sbxerr.NetRule, op, err, remedyMissing)
	}
	if b == backendAny || c.backend == b {
		return c, nil
	}
	other, err := namedCommand(f, string(f)+"-"+string(b))
	if err == nil && other.backend != b {
		err = fmt.Errorf("use %q: it is for %s", other.path, other.backend)
	}
	if err != nil {
		return command{}, sbxerr.WithRemedy(sbxerr.NetRule, op,
			fmt.Errorf("the namespace has rules of %s for %s, and the host's command is for %s: %w", f, b, c.backend, err),
			"install the commands for both kernel interfaces, or make the sandbox again")
	}
	return other, nil
}

// namedCommand returns the command of that name. What its link leads to may change
// while the daemon runs.
func namedCommand(f family, name string) (command, error) {
	path, err := findBinary(name)
	if err != nil {
		return command{}, err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return command{}, err
	}
	key := strings.Join([]string{path, target, strconv.Itoa(lockWait)}, "\x00")
	if c, ok := known.Load(key); ok {
		return c.(command), nil
	}
	var c command
	err = bounded(onThread, func() (err error) { c, err = openCommand(f, path); return err })
	if err == nil {
		known.Store(key, c)
	}
	return c, err
}

// openCommand refuses versions before 1.6.2, which cannot wait for the lock.
func openCommand(f family, path string) (command, error) {
	ipt, err := iptables.New(iptables.IPFamily(protocols[f]), iptables.Path(path), iptables.Timeout(lockWait))
	if err != nil {
		return command{}, fmt.Errorf("run %q: %w", path, clipped(err))
	}
	major, minor, patch := ipt.GetIptablesVersion()
	c := command{ruleTables: ipt, path: path, version: fmt.Sprintf("%d.%d.%d", major, minor, patch), backend: backendLegacy}
	if slices.Compare([]int{major, minor, patch}, []int{1, 6, 2}) < 0 {
		return c, fmt.Errorf("use %q: it is version %s; want 1.6.2 or newer", path, c.version)
	}
	text, err := exec.Command(path, "--version").Output() // the library does not tell the backend
	if strings.Contains(string(text), "(nf_tables)") {
		c.backend = backendNFT
	}
	return c, err
}

var protocols = map[family]iptables.Protocol{familyV4: iptables.ProtocolIPv4, familyV6: iptables.ProtocolIPv6}

// findBinary returns the first place where a program of that name is.
func findBinary(name string) (string, error) {
	for _, dir := range binaryDirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %q in %s: it is not there", name, strings.Join(binaryDirs, ", "))
}

// with calls fn with c on a thread that do provides. A refusal has code
// sbxerr.NetRule.
func (c command) with(do func(func() error) error, fn func(ruleTables) error) error {
	const op = "netns.iptables"
	err := bounded(do, func() error { return fn(c.ruleTables) })
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "xtables lock") {
		return sbxerr.WithRemedy(sbxerr.NetRule, op, err, remedyLock)
	}
	return sbxerr.New(sbxerr.NetRule, op, "use %q (%s): %w", c.path, c.backend, clipped(err))
}

// clipped is err, or the first part of a long one: it holds all that a command printed.
func clipped(err error) error {
	if text := err.Error(); len(text) > 800 {
		return fmt.Errorf("%.800q", text)
	}
	return err
}

// bounded has do call fn, which runs commands, on a thread of its own. Commands that
// run for longer than commandTimeout are killed, with all that they started.
func bounded(do func(func() error) error, fn func() error) error {
	var thread lockedThread
	done := make(chan error, 1)
	go func() { done <- do(func() error { return thread.run(fn) }) }()
	late := time.NewTimer(commandTimeout)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
	}
	stuck := fmt.Errorf("commands did not end within %s, and were killed: %w", commandTimeout, context.DeadlineExceeded)
	for i := range 100 { // one that waits for a disk ends late
		signal := unix.SIGKILL
		if i < 3 {
			signal = unix.SIGSTOP // first, so that none starts another while it is killed
		}
		thread.signalChildren(signal)
		select {
		case err := <-done:
			return errors.Join(stuck, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return stuck
}

// lockedThread is a thread that runs commands one after the other.
type lockedThread struct {
	mu sync.Mutex
	id int // 0 while fn does not run: the kernel may give the number to another one
}

// run calls fn. go-iptables panics at a list of chains that has a line without a name.
func (t *lockedThread) run(fn func() error) (err error) {
	defer func() {
		t.set(0)
		if p := recover(); p != nil {
			err = fmt.Errorf("read the output of iptables: %v", p)
		}
	}()
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return fmt.Errorf("commands that hang could not be found (CONFIG_PROC_CHILDREN): %w", err)
	}
	t.set(unix.Gettid())
	return fn()
}

func (t *lockedThread) set(id int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id = id
}

func (t *lockedThread) signalChildren(signal unix.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.id != 0 {
		signalTree(fmt.Sprintf("/proc/self/task/%d/children", t.id), signal)
	}
}

// signalTree signals the processes that the file children lists, the youngest first. A number
// that was given to another process meanwhile is not in the list any more.
func signalTree(children string, signal unix.Signal) {
	for _, pid := range readChildren(children) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it ended
		}
		if slices.Contains(readChildren(children), pid) {
			signalTree(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid), signal)
			_ = unix.PidfdSendSignal(fd, signal, nil, 0) // one that ended is as good
		}
		_ = unix.Close(fd)
	}
}

func readChildren(path string) (pids []int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // its process ended
	}
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
