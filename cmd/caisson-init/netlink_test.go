package main

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

func TestBoundOfNetlinkSockets(t *testing.T) {
	for size, want := range map[int]int{
		0: maxNetlink, 1 << 10: maxNetlink, 425984: 64, 1 << 20: 32, 2 << 20: 16, 8 << 20: 4, 1 << 30: minNetlink,
	} {
		if got := boundFor(size); got != want {
			t.Errorf("sockets of %d bytes: %d, want %d", size, got, want)
		}
	}
	got, err := netlinkBound()
	if err != nil || got < minNetlink || got > maxNetlink {
		t.Errorf("on this host: %d, %v", got, err)
	}
}

func TestProtocols(t *testing.T) {
	const head = "protocol  size sockets  memory press maxhdr  slab module     cl co\n" +
		"UNIX      1152      9      -1   NI       0   yes  kernel      y  n\n"
	for list, want := range map[string]int{
		head + "NETLINK   1096      0      -1   NI       0   no   kernel      n  n\n": 0,
		head + "NETLINK   1096   4711      -1   NI       0   no   kernel      n  n":   4711,
		head:                            -1,
		"":                              -1,
		"NETLINK \n":                    -1,
		"NETLINK   1096":                -1,
		"NETLINK   1096      7":         -1, // cut off
		"XNETLINK  1096      7      -1": -1,
	} {
		got, err := parseProtocols([]byte(list))
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %d, %v; want %d", list, got, err, want)
		}
	}
}

// The kernel counts a socket as soon as it is there, and no longer once it is closed.
func TestCountOfNetlinkSockets(t *testing.T) {
	need.Root(t, "it makes a network namespace")
	g := new(netlinkGuard)
	inNewNetwork(t, func() {
		count := func() int {
			t.Helper()
			n, err := g.sockets()
			if err != nil {
				t.Error(err)
			}
			return n
		}
		if got := count(); got != 0 {
			t.Errorf("a new namespace has %d", got)
		}
		var fds []int
		for i := range 5 {
			fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
			if err != nil {
				t.Error(err)
				return
			}
			fds = append(fds, fd)
			if got := count(); got != i+1 {
				t.Errorf("%d sockets are counted as %d", i+1, got)
			}
		}
		for _, fd := range fds {
			syscall.Close(fd)
		}
		if got := count(); got != 0 {
			t.Errorf("%d are counted after all are closed", got)
		}
	})
}

// A socket that was allowed counts until its thread surely has it.
func TestPendingSockets(t *testing.T) {
	states := map[int]byte{1: 'R', 2: 'D', 3: 'S', 4: 'T', 5: 't', 6: 'Z', 7: 'X', 8: threadGone, 9: 'R', 10: 'I', 11: 'P'}
	got := pending([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 9, func(thread int) byte { return states[thread] })
	if want := []int{1, 2, 10, 11}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestThreadState(t *testing.T) {
	if got := threadState(syscall.Gettid()); got != 'R' {
		t.Errorf("the thread that asks: %q", got)
	}
	if got := threadState(1 << 30); got != threadGone {
		t.Errorf("none: %q", got)
	}
	if got := threadState(1); !strings.ContainsRune("SRD", rune(got)) {
		t.Errorf("the first process: %q", got)
	}
}

// inNewNetwork runs f on a thread with a network namespace of its own. The thread ends
// with the goroutine.
func inNewNetwork(t *testing.T, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f()
	})
	wg.Wait()
}
