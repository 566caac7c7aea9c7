package secret

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arenaSize is how much memory all secrets and their forms have, in bytes. It is below the
// usual limit of locked memory (RLIMIT_MEMLOCK).
const arenaSize = 4 << 20

// Protection is how the memory of secrets is protected.
type Protection string

// The kinds of protection, the strongest first.
const (
	// Hidden memory is mapped nowhere else, not even in the kernel (memfd_secret(2)): neither
	// root nor a debugger reads it through /proc or ptrace. It is never swapped.
	Hidden Protection = "memfd_secret"
	// Locked memory is never swapped and in no core dump.
	Locked Protection = "mlock"
)

var errFull = errors.New("the memory for secrets is full")

// arena is memory outside of Go's heap, so that nothing copies or moves what is in it.
type arena struct {
	protection Protection

	mu     sync.Mutex
	memory []byte
	free   []span // in order, none next to another
}

// span is a part of the arena, in bytes.
type span struct{ at, size int }

// newArena maps the memory. A process that gave up its rights may not be able to.
func newArena() (*arena, error) {
	memory, err := hidden(arenaSize)
	protection := Hidden
	if err != nil {
		protection = Locked
		memory, err = locked(arenaSize)
	}
	if err != nil {
		return nil, err
	}
	return &arena{protection: protection, memory: memory, free: []span{{0, arenaSize}}}, nil
}

func hidden(size int) ([]byte, error) {
	fd, _, errno := unix.Syscall(unix.SYS_MEMFD_SECRET, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	defer func() { _ = unix.Close(int(fd)) }() // the mapping stays
	if err := unix.Ftruncate(int(fd), int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(fd), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func locked(size int) ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	for _, err := range []error{unix.Mlock(memory), unix.Madvise(memory, unix.MADV_DONTDUMP), unix.Madvise(memory, unix.MADV_WIPEONFORK)} {
		if err != nil {
			return nil, errors.Join(err, unix.Munmap(memory))
		}
	}
	return memory, nil
}

// take returns size bytes, all zero.
func (a *arena) take(size int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.free {
		f := &a.free[i]
		if f.size < size {
			continue
		}
		b := a.memory[f.at : f.at+size : f.at+size]
		if f.at, f.size = f.at+size, f.size-size; f.size == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return b, nil
	}
	return nil, errFull
}

// give zeroes b, which take returned, and takes it back.
func (a *arena) give(b []byte) {
	if cap(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b = b[:cap(b)]
	clear(b)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.memory)))
	s := span{int(at), len(b)}
	i, _ := slices.BinarySearchFunc(a.free, s.at, func(f span, at int) int { return f.at - at })
	a.free = slices.Insert(a.free, i, s)
	for _, j := range []int{i + 1, i} { // one next to another becomes one
		if j > 0 && j < len(a.free) && a.free[j-1].at+a.free[j-1].size == a.free[j].at {
			a.free[j-1].size += a.free[j].size
			a.free = slices.Delete(a.free, j, j+1)
		}
	}
}

// close unmaps the memory. Nothing may use it any more.
func (a *arena) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.memory)
	memory := a.memory
	a.memory, a.free = nil, nil
	return unix.Munmap(memory)
}
