package sockmem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The names of what is pinned. The link to the cgroup comes last: with it all is there.
const (
	pinTags   = "tags"
	pinState  = "state"
	pinSums   = "sums"
	pinWake   = "wake"
	pinLook   = "look"
	pinCreate = "create"
)

// Open watches the sockets that are made below the cgroup2 directory group from now on.
// It pins maps and programs in the directory pins of a bpffs, or goes on with what an
// earlier daemon pinned there for the same group.
func Open(group, pins string) (*Watch, error) {
	opening.Lock()
	defer opening.Unlock()
	id, err := ID(group)
	if err != nil {
		return nil, err
	}
	m, err := pinned(pins, id)
	if err != nil {
		if err := Remove(pins); err != nil { // half made, or for a group that is gone
			return nil, err
		}
		if m, err = load(group, id, pins); err != nil {
			return nil, errors.Join(err, Remove(pins))
		}
	}
	return newWatch(m, filepath.Join(pins, pinLook))
}

// Remove ends the watch whose directory is pins. Absent is success.
func Remove(pins string) error {
	dir, err := unix.Open(pins, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: pins, Err: err}
	}
	defer unix.Close(dir) // nothing was written
	var errs []error
	for _, name := range []string{pinCreate, pinLook, pinWake, pinSums, pinState, pinTags} {
		if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &fs.PathError{Op: "unlink", Path: filepath.Join(pins, name), Err: err})
		}
	}
	return errors.Join(errs...)
}

// pinned opens the maps that are pinned, if their program is on the cgroup with that id.
func pinned(pins string, id uint64) (m maps, err error) {
	l, err := link.LoadPinnedLink(filepath.Join(pins, pinCreate), nil)
	if err != nil {
		return m, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return m, err
	}
	if on := info.Cgroup(); on == nil || on.CgroupId != id { // 0 where the group was removed
		return m, errors.New("the program is not on this cgroup")
	}
	for name, to := range m.byName() {
		if *to, err = ebpf.LoadPinnedMap(filepath.Join(pins, name), nil); err != nil {
			return maps{}, errors.Join(err, m.close())
		}
	}
	return m, nil
}

func (m *maps) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{pinTags: &m.tags, pinState: &m.state, pinSums: &m.sums, pinWake: &m.wake}
}

// load makes maps and programs, and pins them.
func load(group string, id uint64, pins string) (maps, error) {
	m, err := newMaps()
	if err != nil {
		return m, err
	}
	for name, of := range m.byName() {
		if err := (*of).Pin(filepath.Join(pins, name)); err != nil {
			return maps{}, errors.Join(fmt.Errorf("pin the map %q: %w", name, err), m.close())
		}
	}
	err = pinLooks(m, pins)
	if err == nil {
		err = pinCreates(m, group, id, pins)
	}
	if err != nil {
		return maps{}, errors.Join(err, m.close())
	}
	return m, nil
}

// newLook loads the program that looks. It needs the kernel's types, which take 42 MiB.
func newLook(m maps) (*ebpf.Program, error) {
	defer debug.FreeOSMemory()
	defer btf.FlushKernelSpec()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	o, err := readOffsets(kernel)
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	program, err := ebpf.NewProgram(lookProgram(m, o))
	if err != nil {
		return nil, fmt.Errorf("load the program that looks at sockets: %w", err)
	}
	return program, nil
}

func pinLooks(m maps, pins string) error {
	program, err := newLook(m)
	if err != nil {
		return err
	}
	defer program.Close()
	if err := program.Pin(filepath.Join(pins, pinLook)); err != nil {
		return fmt.Errorf("pin the program that looks at sockets: %w", err)
	}
	return nil
}

// Check reports why this host cannot watch sockets. It leaves nothing.
func Check() (err error) {
	opening.Lock()
	defer opening.Unlock()
	m, err := newMaps()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	create, err := ebpf.NewProgram(createProgram(m, 1))
	if err != nil {
		return fmt.Errorf("load the program that tags sockets: %w", err)
	}
	defer create.Close()
	look, err := newLook(m)
	if err != nil {
		return err
	}
	defer look.Close()
	if _, err := look.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("walk the sockets: %w", err)
	}
	return nil
}

func newMaps() (m maps, err error) {
	specs := mapSpecs()
	for name, to := range m.byName() {
		if *to, err = ebpf.NewMap(specs[name]); err != nil {
			return maps{}, errors.Join(fmt.Errorf("make the map %q: %w", name, err), m.close())
		}
	}
	return m, nil
}

// pinCreates makes the program that tags sockets.
func pinCreates(m maps, group string, id uint64, pins string) error {
	program, err := ebpf.NewProgram(createProgram(m, id))
	if err != nil {
		return fmt.Errorf("load the program that tags sockets: %w", err)
	}
	defer program.Close()
	dir, err := os.Open(group)
	if err != nil {
		return err
	}
	defer dir.Close()
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: program, Attach: ebpf.AttachCGroupInetSockCreate})
	if err != nil {
		return fmt.Errorf("attach a program to cgroup %q: %w", group, err)
	}
	defer l.Close()
	if err := l.Pin(filepath.Join(pins, pinCreate)); err != nil {
		return fmt.Errorf("pin the program that tags sockets: %w", err)
	}
	return nil
}
