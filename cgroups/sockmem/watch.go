package sockmem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Held is what the sockets of a sandbox hold, in bytes.
type Held struct {
	Uncharged int64 // to no cgroup
	Total     int64 // with what a cgroup may be charged for
	Sockets   int64 // how many there are
}

// Watch sees all sockets of the sandboxes below a cgroup. Look is for one goroutine.
type Watch struct {
	group   string
	maps    maps
	program *ebpf.Program
	ring    *ringbuf.Reader

	looks uint64
	keys  []uint64
	sums  []sum
	held  map[uint64]Held
}

// ID is the number by which BPF programs know the cgroup at dir.
func ID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return st.Ino, nil // the same as the ID on a machine of 64 bits
}

// newWatch owns the maps and the program that looks, also where it fails.
func newWatch(group string, m maps, look *ebpf.Program) (*Watch, error) {
	ring, err := ringbuf.NewReader(m.wake)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the ring: %w", err), look.Close(), m.close())
	}
	w := &Watch{group: group, maps: m, program: look, ring: ring, keys: make([]uint64, maxSums), sums: make([]sum, maxSums), held: map[uint64]Held{}}
	var last state
	if err := m.state.Lookup(uint32(0), &last); err != nil {
		return nil, errors.Join(fmt.Errorf("read the number of the last look: %w", err), w.Close())
	}
	w.looks = last.Look
	return w, nil
}

// little is what the sockets of all sandboxes may hold before anybody asks which.
const little = 1 << 20

// The number of sockets past which somebody may ask whose they are: a look takes as long as
// there are sockets.
const (
	Many = 16 << 10 // of a sandbox, or of all
	Most = 64 << 10 // of all sandboxes together
)

// Look adds up what the sockets of each cgroup hold. The map is empty where all hold
// little and are not many, and is valid until the next Look. Sockets counts all. With arm, the next socket that is made ends Wait.
func (w *Watch) Look(arm bool) (held map[uint64]Held, sockets int, err error) {
	st, err := w.look(arm)
	if err != nil {
		return nil, 0, err
	}
	clear(w.held)
	if st.Total < little && st.Sockets <= Many && st.Lost == 0 {
		return w.held, int(st.Sockets), nil
	}
	if err := w.readSums(); err != nil {
		return nil, 0, err
	}
	if st.Lost > 0 {
		err = fmt.Errorf("more than %d sandboxes have sockets: %d were not counted", maxSums, st.Lost)
	}
	return w.held, int(st.Sockets), err
}

// look has the program walk all sockets.
func (w *Watch) look(arm bool) (st state, err error) {
	w.looks++
	st.Look = w.looks
	if arm {
		st.Asleep = 1
	}
	if err := w.maps.state.Put(uint32(0), &st); err != nil {
		return st, fmt.Errorf("reset the count of sockets: %w", err)
	}
	if _, err := w.program.Run(&ebpf.RunOptions{}); err != nil {
		return st, fmt.Errorf("walk the sockets: %w", err)
	}
	if err := w.maps.state.Lookup(uint32(0), &st); err != nil {
		return st, fmt.Errorf("read the count of sockets: %w", err)
	}
	if st.Cut != 0 {
		return st, fmt.Errorf("walk the sockets: it ended after %d", st.Sockets)
	}
	return st, nil
}

// readSums reads the sums of this look into held, and makes room of older ones.
func (w *Watch) readSums() error {
	clear(w.held)
	var at ebpf.MapBatchCursor
	n, err := w.maps.sums.BatchLookup(&at, w.keys, w.sums, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // that is the end of the map
		return fmt.Errorf("read the sums: %w", err)
	}
	for i, id := range w.keys[:n] {
		if s := w.sums[i]; s.Look == w.looks {
			w.held[id] = Held{Uncharged: int64(s.Uncharged), Total: int64(s.Total), Sockets: int64(s.Sockets)}
			continue
		}
		if err := w.maps.sums.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove an old sum: %w", err)
		}
	}
	return nil
}

// Wait returns once a socket has been made since the last Look that armed it, or when
// ctx ends. It may return early.
func (w *Watch) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = w.ring.Close() })
	defer stop()
	_, err := w.ring.Read()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for a socket: %w", err)
	}
	return nil
}

// Close lets go of the watch. Sockets are tagged until Remove.
func (w *Watch) Close() error { return errors.Join(w.ring.Close(), w.program.Close(), w.maps.close()) }

func (m maps) close() error {
	var errs []error
	for _, one := range []*ebpf.Map{m.tags, m.state, m.sums, m.wake} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}
