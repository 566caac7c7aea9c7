package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

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

// binaryDirs is where the commands are looked for: not along PATH, which
// belongs to whoever started the daemon.
var binaryDirs = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"}

// lockWait is how many seconds iptables may wait for another one's lock.
var lockWait = 5

// commandTimeout bounds one run. It is longer than lockWait, so that the
// command itself can say why it waited.
var commandTimeout = 10 * time.Second

const (
	remedyMissing = "install iptables 1.6.2 or newer (Debian: apt-get install iptables); caisson doctor says what it finds"
	remedyLock    = "another program holds the lock of iptables (/run/xtables.lock): retry when it is done"
)

// restorer programs and reads the rules of one family in the calling thread's
// namespace.
//
// It runs iptables-restore and iptables-save, of which go-iptables knows
// nothing: that library runs one command for each rule, which takes longer than
// all the rest of a sandbox's network.
type restorer struct {
	backend       backend
	restore, save command
}

// command is a program and the name that it goes by: all commands of iptables
// are one program, and links to it may change while the daemon runs.
type command struct{ path, name string }

// known keeps the restorers that were found, for as long as the process runs.
var known struct {
	sync.Mutex
	restorers map[string]restorer
}

// findRestorer returns the commands for f. A backend that is not the one of
// the host's own commands has commands with its name in theirs.
func findRestorer(f family, b backend) (restorer, error) {
	known.Lock()
	defer known.Unlock()
	key := fmt.Sprint(f, b, binaryDirs)
	if r, ok := known.restorers[key]; ok {
		return r, nil
	}
	r, err := lookForRestorer(f, b)
	if err != nil {
		return r, err
	}
	if known.restorers == nil {
		known.restorers = map[string]restorer{}
	}
	known.restorers[key] = r
	return r, nil
}

func lookForRestorer(f family, b backend) (restorer, error) {
	const op = "netns.find_iptables"
	r, err := namedRestorer(string(f))
	if err != nil {
		return restorer{}, sbxerr.WithRemedy(sbxerr.NetRule, op, err, remedyMissing)
	}
	if b == backendAny || r.backend == b {
		return r, nil
	}
	other, err := namedRestorer(string(f) + "-" + string(b))
	if err == nil && other.backend != b {
		err = fmt.Errorf("use %q: it is for %s", other.restore.name, other.backend)
	}
	if err != nil {
		return restorer{}, sbxerr.WithRemedy(sbxerr.NetRule, op,
			fmt.Errorf("the namespace has rules of %s for %s, and the host's command is for %s: %w", f, b, r.backend, err),
			"install the commands for both kernel interfaces, or make the sandbox again")
	}
	return other, nil
}

// namedRestorer looks for PREFIX-restore and PREFIX-save.
func namedRestorer(prefix string) (r restorer, err error) {
	if r.restore, err = findCommand(prefix + "-restore"); err != nil {
		return r, err
	}
	if r.save, err = findCommand(prefix + "-save"); err != nil {
		return r, err
	}
	version, err := r.restore.run("", "--version")
	if err != nil {
		return r, err
	}
	r.backend, err = parseVersion(version)
	return r, err
}

// findCommand returns the first place where the command is, its links
// followed.
func findCommand(name string) (command, error) {
	path, err := findBinary(name)
	if err != nil {
		return command{}, err
	}
	path, err = filepath.EvalSymlinks(path)
	return command{path, name}, err
}

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

var versionPattern = regexp.MustCompile(`v([0-9]+)\.([0-9]+)\.([0-9]+)(?: \((nf_tables|legacy)\))?`)

// parseVersion reads "iptables-restore v1.8.9 (nf_tables)". Before 1.8 there
// was one backend; before 1.6.2 iptables-restore could not wait for the lock.
func parseVersion(text string) (backend, error) {
	m := versionPattern.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("read the version of iptables: %.100q is none", text)
	}
	var v [3]int
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // digits; too many make it the largest number
	}
	if v[0] < 1 || v[0] == 1 && (v[1] < 6 || v[1] == 6 && v[2] < 2) {
		return "", fmt.Errorf("use iptables %d.%d.%d: want 1.6.2 or newer", v[0], v[1], v[2])
	}
	if m[4] == "nf_tables" {
		return backendNFT, nil
	}
	return backendLegacy, nil
}

// Restore replaces the tables, each as a whole.
func (r restorer) Restore(tables []table) error {
	_, err := r.restore.run(render(tables), "-w", strconv.Itoa(lockWait))
	return err
}

// Amend runs the lines of tables without replacing what else is in them.
func (r restorer) Amend(lines string) error {
	_, err := r.restore.run(lines, "--noflush", "-w", strconv.Itoa(lockWait))
	return err
}

// Save reads all tables that there are.
func (r restorer) Save() ([]table, error) {
	out, err := r.save.run("")
	if err != nil {
		return nil, err
	}
	return parseSaved(out)
}

// run runs c in the calling thread's namespace, with no environment: that of
// the daemon could name a folder from which iptables loads its extensions.
func (c command) run(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Args[0] = c.name
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(input)
	// One that hangs is killed with all that it started, also where this process ends first.
	goruntime.LockOSThread() // a death signal comes with the end of the thread, prctl(2)
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", refusal(c, errors.Join(err, context.Cause(ctx)), complaint.String())
	}
	return out.String(), nil
}

// refusal is what c said about why it did not do it.
func refusal(c command, err error, complaint string) error {
	const op = "netns.iptables"
	err = fmt.Errorf("run %q (%s): %w: %.400q", c.name, c.path, err, strings.TrimSpace(complaint))
	if strings.Contains(complaint, "xtables lock") {
		return sbxerr.WithRemedy(sbxerr.NetRule, op, err, remedyLock)
	}
	return sbxerr.Wrap(sbxerr.NetRule, op, err)
}
