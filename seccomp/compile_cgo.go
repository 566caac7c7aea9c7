//go:build cgo

package seccomp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// What Compile asks for. libseccomp 2.5.4 is the first with the call table of Linux
// 5.17, which is what a name must be in that is not Optional; level 3 is Linux 4.14.
var libraryNeeded = [3]uint{2, 5, 4}

const minAPILevel = 3

// Compile builds p's filter with libseccomp in the way runc does and exports it.
// It loads nothing. It fails if a name that is not Optional does not resolve, which
// runc would pass over, and if libseccomp is older than 2.5.4.
func (p Profile) Compile(o Options) (*Compiled, error) {
	c, err := p.compile(o)
	return c, sbxerr.Wrap(sbxerr.Seccomp, "seccomp.compile", err)
}

func (p Profile) compile(o Options) (*Compiled, error) {
	out, err := library()
	if err != nil {
		return nil, err
	}
	spec, err := p.Spec(o)
	if err != nil {
		return nil, err
	}
	arch, err := libseccomp.GetArchFromString(o.arch()) // it takes the names of Go
	if err != nil {
		return nil, fmt.Errorf("name architecture %q: %w", o.arch(), err)
	}
	if out.Skipped, err = resolve(p.Active(o), arch); err != nil {
		return nil, err
	}
	return out, out.build(spec, arch)
}

// CompileSpec builds a filter with libseccomp from its OCI form, in the way runc does.
// Names that this libseccomp does not know are passed over, as runc passes over them.
func CompileSpec(spec *specs.LinuxSeccomp) (*Compiled, error) {
	const op = "seccomp.compile"
	out, err := library()
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Seccomp, op, err)
	}
	arch, err := libseccomp.GetNativeArch()
	if err != nil {
		return nil, sbxerr.New(sbxerr.Seccomp, op, "ask for the native architecture: %w", err)
	}
	return out, sbxerr.Wrap(sbxerr.Seccomp, op, out.build(spec, arch))
}

// Library returns the version of libseccomp that this program is linked with, or why it
// cannot compile filters.
func Library() (string, error) {
	found, err := library()
	if err != nil {
		return "", sbxerr.Wrap(sbxerr.Seccomp, "seccomp.library", err)
	}
	return found.Library, nil
}

// nameOf returns the name of a call of this architecture, "" if it has none.
func nameOf(number uint32) string {
	name, err := libseccomp.ScmpSyscall(number).GetName()
	if err != nil {
		return ""
	}
	return name
}

// build fills c with what libseccomp makes of spec.
func (c *Compiled) build(spec *specs.LinuxSeccomp, arch libseccomp.ScmpArch) error {
	var err error
	if c.Numbers, err = numbersOf(spec, arch); err != nil {
		return err
	}
	filter, err := start(spec, arch)
	if err != nil {
		return err
	}
	defer filter.Release()
	if c.BPF, err = export(filter.ExportBPF); err != nil {
		return fmt.Errorf("export BPF: %w", err)
	}
	pfc, err := export(filter.ExportPFC)
	if err != nil {
		return fmt.Errorf("export PFC: %w", err)
	}
	c.PFC = string(pfc)
	return nil
}

// numbersOf resolves the names of spec. Those that arch does not have are left out.
func numbersOf(spec *specs.LinuxSeccomp, arch libseccomp.ScmpArch) (map[string]uint32, error) {
	out := map[string]uint32{}
	for _, call := range spec.Syscalls {
		for _, name := range call.Names {
			number, err := libseccomp.GetSyscallFromNameByArch(name, arch)
			switch {
			case errors.Is(err, libseccomp.ErrSyscallDoesNotExist):
			case err != nil:
				return nil, fmt.Errorf("resolve system call %q: %w", name, err)
			case number >= 0:
				out[name] = uint32(number)
			}
		}
	}
	return out, nil
}

// library checks and describes libseccomp.
func library() (*Compiled, error) {
	major, minor, micro := libseccomp.GetLibraryVersion()
	out := &Compiled{Library: fmt.Sprintf("%d.%d.%d", major, minor, micro)}
	if found := [3]uint{major, minor, micro}; slices.Compare(found[:], libraryNeeded[:]) < 0 {
		return nil, fmt.Errorf("use libseccomp %s: %d.%d.%d is needed", out.Library, libraryNeeded[0], libraryNeeded[1], libraryNeeded[2])
	}
	level, err := libseccomp.GetAPI()
	if err != nil {
		return nil, fmt.Errorf("ask for libseccomp's API level: %w", err)
	}
	if level < minAPILevel {
		return nil, fmt.Errorf("use libseccomp at API level %d: %d is needed", level, minAPILevel)
	}
	out.APILevel = level
	return out, nil
}

// resolve returns the optional names that libseccomp does not know for arch. Any
// other such name is an error. A negative number is libseccomp's for a call that only
// other architectures have.
func resolve(rules []Rule, arch libseccomp.ScmpArch) (skipped []string, err error) {
	var errs []error
	for _, r := range rules {
		for _, name := range r.Syscalls {
			number, err := libseccomp.GetSyscallFromNameByArch(name, arch)
			switch {
			case err == nil && number >= 0:
			case err == nil:
				errs = append(errs, fmt.Errorf("system call %q does not exist on %s", name, arch))
			case r.Optional && errors.Is(err, libseccomp.ErrSyscallDoesNotExist):
				skipped = append(skipped, name)
			default:
				errs = append(errs, fmt.Errorf("resolve system call %q: %w", name, err))
			}
		}
	}
	return skipped, errors.Join(errs...)
}

// start makes spec's filter. The caller releases it.
func start(spec *specs.LinuxSeccomp, arch libseccomp.ScmpArch) (*libseccomp.ScmpFilter, error) {
	if spec.DefaultAction != specs.ActErrno || spec.DefaultErrnoRet == nil {
		return nil, fmt.Errorf("default action %s is none that is declared here", spec.DefaultAction)
	}
	filter, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(int16(*spec.DefaultErrnoRet)))
	if err != nil {
		return nil, fmt.Errorf("start a filter: %w", err)
	}
	if err := fill(filter, spec, arch); err != nil {
		filter.Release()
		return nil, err
	}
	return filter, nil
}

func fill(filter *libseccomp.ScmpFilter, spec *specs.LinuxSeccomp, arch libseccomp.ScmpArch) error {
	if err := only(filter, arch); err != nil {
		return fmt.Errorf("filter %s alone: %w", arch, err)
	}
	const tree = 2 // runc sorts the calls into a tree, too
	if err := filter.SetOptimize(tree); err != nil {
		return fmt.Errorf("sort the filter: %w", err)
	}
	for _, call := range spec.Syscalls {
		for _, name := range call.Names {
			if err := add(filter, name, call); err != nil {
				return fmt.Errorf("add a rule for system call %q: %w", name, err)
			}
		}
	}
	return nil
}

// only makes arch the one architecture of filter, which starts with the native one.
func only(filter *libseccomp.ScmpFilter, arch libseccomp.ScmpArch) error {
	native, err := libseccomp.GetNativeArch()
	if err != nil || native == arch {
		return err
	}
	if err := filter.AddArch(arch); err != nil {
		return err
	}
	return filter.RemoveArch(native)
}

// add adds one entry for one name. A name that does not resolve was found to be
// optional before.
func add(filter *libseccomp.ScmpFilter, name string, call specs.LinuxSyscall) error {
	number, err := libseccomp.GetSyscallFromName(name)
	if errors.Is(err, libseccomp.ErrSyscallDoesNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	action, err := actionOf(call)
	if err != nil {
		return err
	}
	if len(call.Args) == 0 {
		return filter.AddRule(number, action)
	}
	var conditions []libseccomp.ScmpCondition
	for _, a := range call.Args {
		if a.Op != specs.OpMaskedEqual {
			return fmt.Errorf("comparison %s is none that is declared here", a.Op)
		}
		c, err := libseccomp.MakeCondition(a.Index, libseccomp.CompareMaskedEqual, a.Value, a.ValueTwo)
		if err != nil {
			return err
		}
		conditions = append(conditions, c)
	}
	return filter.AddRuleConditional(number, action, conditions)
}

func actionOf(call specs.LinuxSyscall) (libseccomp.ScmpAction, error) {
	switch {
	case call.Action == specs.ActAllow:
		return libseccomp.ActAllow, nil
	case call.Action == specs.ActErrno && call.ErrnoRet != nil:
		return libseccomp.ActErrno.SetReturnCode(int16(*call.ErrnoRet)), nil
	}
	return libseccomp.ActInvalid, fmt.Errorf("action %s is none that is declared here", call.Action)
}

// export returns what write writes to a file. libseccomp wants a descriptor; a
// memfd takes any size without a reader.
func export(write func(*os.File) error) ([]byte, error) {
	fd, err := unix.MemfdCreate("caisson-seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd")
	defer file.Close()
	if err := write(file); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}
