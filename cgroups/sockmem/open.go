package sockmem

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/cgroups"
)

// The names of what is pinned. The link to the cgroup comes last: with it all is there.
const (
	pinTags   = "tags"
	pinState  = "state"
	pinSums   = "sums"
	pinWake   = "wake"
	pinLook   = "look"
	pinCreate = "create-" // and the revision of the programs
)

// revision tells these programs from those of another version, which a daemon of today must
// not go on with.
var revision = sync.OnceValue(func() string {
	text := fmt.Sprint(createProgram(maps{}, 0).Instructions, lookProgram(maps{}, offsets{}).Instructions)
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:4])
})

// opening keeps two watches from being made at once: they share the kernel's types.
var opening sync.Mutex

// Open watches the sockets that are made below the cgroup2 directory group from now on. It
// pins maps and programs in the directory pins of a bpffs, or goes on with those that an
// earlier daemon pinned there for the same group. It fails unless they count a socket that
// it has a child make.
func Open(ctx context.Context, group, pins string) (*Watch, error) {
	opening.Lock()
	defer opening.Unlock()
	id, err := ID(group)
	if err != nil {
		return nil, err
	}
	w, err := pinned(group, id, pins)
	if err != nil {
		if err := Remove(pins); err != nil { // half made, of another version, or for a group that is gone
			return nil, err
		}
		if w, err = load(group, id, pins); err != nil {
			return nil, errors.Join(err, Remove(pins))
		}
	}
	if err := w.prove(ctx); err != nil { // what is pinned goes on: a later proof may succeed
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Check reports why this host cannot count sockets below root, a directory of cgroup2. It
// leaves nothing.
func Check(ctx context.Context, root string) (err error) {
	opening.Lock()
	defer opening.Unlock()
	group := filepath.Join(root, "caisson-probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cgroups.RemoveDir(context.WithoutCancel(ctx), group)) }()
	id, err := ID(group)
	if err != nil {
		return err
	}
	w, create, err := build(group, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(), create.Close()) }()
	return w.prove(ctx)
}

// Remove ends the watch whose directory is pins. Absent is success.
func Remove(pins string) error {
	dir, err := os.OpenFile(pins, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close() // nothing was written
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names) // the link to the cgroup first
	var errs []error
	for _, name := range names {
		if strings.HasSuffix(name, ".debug") { // the kernel's own, which are there always
			continue
		}
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &fs.PathError{Op: "unlink", Path: filepath.Join(pins, name), Err: err})
		}
	}
	return errors.Join(errs...)
}

// pinned opens the watch that is pinned, if its programs are those of this version and on
// the group.
func pinned(group string, id uint64, pins string) (*Watch, error) {
	l, err := link.LoadPinnedLink(filepath.Join(pins, pinCreate+revision()), nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	if on := info.Cgroup(); on == nil || on.CgroupId != id { // 0 where the group was removed
		return nil, errors.New("the program is not on this cgroup")
	}
	var m maps
	specs := mapSpecs()
	for name, to := range m.byName() {
		if *to, err = ebpf.LoadPinnedMap(filepath.Join(pins, name), nil); err == nil {
			err = specs[name].Compatible(*to)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the map %q: %w", name, err), m.close())
		}
	}
	look, err := ebpf.LoadPinnedProgram(filepath.Join(pins, pinLook), nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the program that looks: %w", err), m.close())
	}
	return newWatch(group, m, look)
}

// load makes maps and programs, and pins them.
func load(group string, id uint64, pins string) (*Watch, error) {
	w, create, err := build(group, id)
	if err != nil {
		return nil, err
	}
	defer create.Close()
	pin := func(name string, to interface{ Pin(string) error }) {
		if e := to.Pin(filepath.Join(pins, name)); e != nil {
			err = errors.Join(err, fmt.Errorf("pin %q: %w", name, e))
		}
	}
	for name, of := range w.maps.byName() {
		pin(name, *of)
	}
	pin(pinLook, w.program)
	pin(pinCreate+revision(), create)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// build makes maps and programs. The link has sockets tagged until it is closed, unless it
// is pinned.
func build(group string, id uint64) (*Watch, link.Link, error) {
	m, err := newMaps()
	if err != nil {
		return nil, nil, err
	}
	look, err := newLook(m)
	if err != nil {
		return nil, nil, errors.Join(err, m.close())
	}
	w, err := newWatch(group, m, look)
	if err != nil {
		return nil, nil, err
	}
	create, err := attachCreate(m, group, id)
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	return w, create, nil
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

// newLook loads the program that looks, which needs a few of the kernel's types.
func newLook(m maps) (*ebpf.Program, error) {
	defer debug.FreeOSMemory()
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

// attachCreate has sockets tagged that are made below a cgroup from now on.
func attachCreate(m maps, group string, id uint64) (link.Link, error) {
	program, err := ebpf.NewProgram(createProgram(m, id))
	if err != nil {
		return nil, fmt.Errorf("load the program that tags sockets: %w", err)
	}
	defer program.Close() // the link holds it
	dir, err := os.Open(group)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: program, Attach: ebpf.AttachCGroupInetSockCreate})
	if err != nil {
		return nil, fmt.Errorf("attach a program to cgroup %q: %w", group, err)
	}
	return l, nil
}
