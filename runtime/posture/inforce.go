package posture

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/kernelfile"
	"github.com/caisson-run/caisson/seccomp"
	"github.com/caisson-run/caisson/seccomp/decide"
)

// FilterDigest names the comparison whose values are digests of the filters in force.
const FilterDigest = "seccomp.digest"

const filtersOp = "posture.filters"

// noListener is the difference of a sandbox whose netlink sockets nobody bounds.
const noListener = "the latest filter is not that of PID 1 that bounds netlink sockets"

// checkFilters compares the filters in force with the declared one and with that of PID 1.
// PID 1's is the latest, to the byte. All the others together must decide every call as
// declared, so one that only narrows is a difference, too.
// Threads cannot have lost a filter that the first one has, since the kernel has no call
// for that; so each must have as many.
func checkFilters(d Declared, threads []thread) ([]Result, error) {
	live, err := readFilters(d.PID, d.PIDFD)
	switch {
	case errors.Is(err, errEnded):
		return nil, sbxerr.Wrap(sbxerr.Init, filtersOp, err)
	case errors.Is(err, errNoFilters):
		if err = ProbeFilters(); err == nil { // so there are none: a difference
			break
		}
		fallthrough
	case err != nil:
		return nil, sbxerr.Wrap(sbxerr.SeccompUnread, filtersOp, err)
	}
	decisions, err := filterVerdicts.of(d.Spec.Linux.Seccomp, d.Listener, live)
	if err != nil {
		return nil, err
	}
	count := threadsHave(threads, "seccomp.programs", strconv.Itoa(len(live)), func(t thread) string { return t.fields["Seccomp_filters"] })
	digest := digestOfPrograms(live)
	found := "sha256:" + hex.EncodeToString(digest[:])
	return []Result{count, decisions, equal(FilterDigest, cmp.Or(d.FilterDigest, found), found)}, nil
}

// verdicts remembers what was found about filters, by digests of the declaration, of PID
// 1's filter and of the programs: a thousand sandboxes of one profile have the same.
type verdicts struct {
	mu    sync.Mutex
	known map[digests]*verdict
}

type digests struct{ declared, listener, live [sha256.Size]byte }

// verdict is found once. Others that ask meanwhile wait for it.
type verdict struct {
	once       sync.Once
	difference string // "" for none
	err        error
}

// maxVerdicts bounds the memory: 6 profiles with the same two programs are usual.
const maxVerdicts = 64

var filterVerdicts verdicts

// of compares live with declared, unless that was done before.
func (v *verdicts) of(declared *specs.LinuxSeccomp, listener []byte, live [][]byte) (Result, error) {
	key := digests{digestOf(declared), sha256.Sum256(listener), digestOfPrograms(live)}
	found := v.get(key)
	found.once.Do(func() { found.difference, found.err = compareFilters(declared, listener, live) })
	if found.err != nil {
		v.forget(key) // it may be for want of memory
		return Result{}, sbxerr.Wrap(sbxerr.SeccompUnread, filtersOp, found.err)
	}
	name := "as declared, program " + hex.EncodeToString(key.live[:6])
	if found.difference == "" {
		return equal("seccomp.decisions", name, name), nil
	}
	return equal("seccomp.decisions", "filter "+hex.EncodeToString(key.declared[:6]), found.difference), nil
}

func (v *verdicts) get(key digests) *verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.known[key]
	if found == nil {
		if v.known == nil || len(v.known) >= maxVerdicts {
			v.known = map[digests]*verdict{}
		}
		found = &verdict{}
		v.known[key] = found
	}
	return found
}

func (v *verdicts) forget(key digests) {
	v.mu.Lock()
	delete(v.known, key)
	v.mu.Unlock()
}

// compareFilters returns how live differs from declared, "" if it does not.
func compareFilters(declared *specs.LinuxSeccomp, listener []byte, live [][]byte) (string, error) {
	if declared == nil {
		return "", errors.New("no filter is declared")
	}
	if len(live) == 0 {
		return none, nil
	}
	want, err := seccomp.Expect(declared)
	if err != nil {
		return "", err
	}
	if want.LetsNetlink() {
		last := len(live) - 1
		if len(listener) == 0 || !bytes.Equal(live[last], listener) {
			return noListener, nil
		}
		live = live[:last]
	}
	if len(live) == 0 {
		return none, nil
	}
	var stack decide.Stack
	for i, raw := range live {
		p, err := decide.Parse(raw)
		if err != nil {
			return "", fmt.Errorf("filter %d in force: %w", i, err)
		}
		stack = append(stack, p)
	}
	d, err := decide.Compare(want, stack)
	if err != nil || d == nil {
		return "", err
	}
	return want.Describe(*d), nil
}

// digestOf identifies a declaration. Every part is preceded by its length, so that no two
// declarations give the same text.
func digestOf(f *specs.LinuxSeccomp) [sha256.Size]byte {
	if f == nil {
		return [sha256.Size]byte{}
	}
	var b []byte
	number := func(n uint64) { b = binary.LittleEndian.AppendUint64(b, n) }
	text := func(s string) { number(uint64(len(s))); b = append(b, s...) }
	optional := func(n *uint) {
		if n == nil {
			number(0)
			return
		}
		number(1)
		number(uint64(*n))
	}
	text(string(f.DefaultAction))
	optional(f.DefaultErrnoRet)
	number(uint64(len(f.Architectures)))
	for _, a := range f.Architectures {
		text(string(a))
	}
	number(uint64(len(f.Syscalls)))
	for _, call := range f.Syscalls {
		text(string(call.Action))
		optional(call.ErrnoRet)
		number(uint64(len(call.Names)))
		for _, name := range call.Names {
			text(name)
		}
		number(uint64(len(call.Args)))
		for _, a := range call.Args {
			number(uint64(a.Index))
			number(a.Value)
			number(a.ValueTwo)
			text(string(a.Op))
		}
	}
	return sha256.Sum256(b)
}

func digestOfPrograms(programs [][]byte) (out [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range programs {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	h.Sum(out[:0])
	return out
}

// ProbeFilters tells why this host shows no filters of other processes: the daemon may
// not be under a filter itself, the kernel must have been built with
// CONFIG_CHECKPOINT_RESTORE, and tracing must not be turned off.
func ProbeFilters() error {
	status, err := kernelfile.Read("/proc/self/status") // of the process: a thread of ours may end while it is read
	if err != nil {
		return fmt.Errorf("read own status: %w", err)
	}
	if mode, _ := field(status, "Seccomp"); mode != "0" {
		return errors.New("the daemon runs under a seccomp filter itself (Seccomp: " + mode + " in its status), and the kernel shows filters only to those without")
	}
	const restoring = "/proc/sys/kernel/ns_last_pid" // there with the same option only
	if _, err := os.Stat(restoring); err != nil {
		return fmt.Errorf("the kernel was built without CONFIG_CHECKPOINT_RESTORE: %w", err)
	}
	scope, err := kernelfile.Read("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(scope) == "3" {
		return errors.New("kernel.yama.ptrace_scope is 3: nobody may trace a process")
	}
	return nil
}
