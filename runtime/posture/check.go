package posture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Declared is a process and its declaration.
type Declared struct {
	PID int // as the daemon sees it
	// PIDFD is a pidfd (pidfd_open(2)) of the same process, required: it proves
	// that PID was not given to another one meanwhile.
	PIDFD *os.File
	Spec  *specs.Spec
	// Listener is the filter that PID 1 adds to the declared one where that lets netlink
	// sockets through, as the kernel shows it. Without it such a sandbox is not as declared.
	Listener []byte
	// FilterDigest is the digest of PID 1's filters that was found when it began, as in
	// the result [FilterDigest]; "" where this is the first check.
	FilterDigest string
	// Sockets is how many unix sockets PID 1 may hold: 1 once it is connected
	// to the daemon. The zero value allows none.
	Sockets int
	// Adopted says that PID 1 has served an earlier daemon: it may hold the pipes
	// and terminals of commands, and look at /proc.
	Adopted bool
	// Ends is the file on a mount of its own that PID 1 may have open to write to;
	// "" for none.
	Ends string
	// Command says that the process is not PID 1 but a command, which has
	// descriptors, environment, directory, umask and lower resource limits of
	// its own. All else is compared as for PID 1.
	Command bool
	// Unisolated says that the sandbox is in the host's user, network and UTS namespace, and
	// that its root is HostMounts, and not what is mounted at Root.Path.
	Unisolated bool
	HostMounts []Place // the lowest on a point first
	// Around holds the surroundings to compare with; nil: Check reads them.
	Around *Surroundings
}

// Place is a mount of the host that the sandbox has too.
type Place struct {
	Device string // major:minor of the file system
	Root   string // directory of the file system that is mounted
	Point  string // absolute path in the sandbox
}

// Result is one comparison.
type Result struct {
	Name     string // stable: "capabilities", "mount /tmp"
	Declared string
	Live     string
	OK       bool
}

// comparison compares one aspect. It is pure.
type comparison func(want) []Result

// comparisons of every process of a sandbox, in the order of their results.
var comparisons = []comparison{
	compareCredentials, compareFilter, compareNamespaces, compareIDMaps, compareCgroups,
	compareRoot, compareMounts, compareDev, compareLimits, compareOOM, compareLabel,
}

// pid1Comparisons hold only of PID 1 as the runtime started it.
var pid1Comparisons = []comparison{compareProgram, compareUmask, compareEnv, compareFiles}

// want is the input of the comparisons.
type want struct {
	Declared
	host host
	live live
}

// Check compares the process with its declaration. It returns every result,
// and an error of code sbxerr.Posture that names all the differences, or of
// code sbxerr.Init if the process has ended. An unreadable value is an error
// too: it cannot be shown to be as declared.
//
// It reads /proc, which never waits, and stops PID 1 for some 50 µs to read its seccomp
// filters. The files of PID 1 are as the runtime left them until its first command
// starts, so that is when to call it.
func Check(ctx context.Context, d Declared) ([]Result, error) {
	const op = "posture.check"
	if err := ctx.Err(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Canceled, op, err)
	}
	if err := d.validate(); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	if d.Unisolated {
		d.Spec = withHostIDs(d.Spec)
	}
	h, err := readHost(d)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Posture, op, err)
	}
	dir, err := openProcess(d.PID, d.PIDFD)
	if err != nil {
		return nil, sbxerr.Wrap(codeOf(err), op, err)
	}
	l, err := readLive(dir)
	if err = errors.Join(err, dir.close()); err != nil {
		return nil, sbxerr.Wrap(codeOf(err), op, fmt.Errorf("read process %d: %w", d.PID, err))
	}
	results := compare(want{Declared: d, host: h, live: l})
	if !d.Command {
		filters, err := checkFilters(d, l.threads)
		if err != nil {
			return results, err
		}
		results = append(results, filters...)
	}
	return results, sbxerr.Wrap(sbxerr.Posture, op, differences(results))
}

func (d Declared) validate() error {
	if d.PID <= 0 || d.PIDFD == nil {
		return errors.New("process and its pidfd are required")
	}
	s := d.Spec
	if s == nil || s.Process == nil || s.Root == nil || s.Linux == nil {
		return errors.New("specification lacks its process, root or linux part")
	}
	if d.Unisolated == (len(d.HostMounts) == 0) {
		return errors.New("the mounts of the host are for a sandbox without isolation, which has some")
	}
	if d.Unisolated && len(s.Linux.UIDMappings)+len(s.Linux.GIDMappings) > 0 {
		return errors.New("a sandbox without isolation maps ids")
	}
	return nil
}

// codeOf tells a process that has ended from one that could not be read.
func codeOf(err error) sbxerr.Code {
	if errors.Is(err, errEnded) {
		return sbxerr.Init
	}
	return sbxerr.Posture
}

func compare(w want) []Result {
	var out []Result
	for _, c := range comparisons {
		out = append(out, c(w)...)
	}
	if w.Command {
		return out
	}
	for _, c := range pid1Comparisons {
		out = append(out, c(w)...)
	}
	return out
}

// withHostIDs is spec with the map of ids of the host's user namespace (user_namespaces(7)).
func withHostIDs(spec *specs.Spec) *specs.Spec {
	out, linux := *spec, *spec.Linux
	all := []specs.LinuxIDMapping{{Size: 1<<32 - 1}}
	linux.UIDMappings, linux.GIDMappings = all, all
	out.Linux = &linux
	return &out
}

// differences joins the results that are not as declared, nil if all are.
func differences(results []Result) error {
	var errs []error
	for _, r := range results {
		if !r.OK {
			errs = append(errs, fmt.Errorf("%s is %q, declared %q", r.Name, r.Live, r.Declared))
		}
	}
	return errors.Join(errs...)
}

// equal is the result of comparing two texts.
func equal(name, declared, live string) Result {
	return Result{Name: name, Declared: declared, Live: live, OK: declared == live}
}

// list renders values in one line.
func list[T any](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, " ")
}
