package initproto

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// pair returns both ends of a connection and the descriptor of the first.
func pair(t *testing.T) (raw int, a, b *Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = NewConn(fds[0]), NewConn(fds[1])
	t.Cleanup(func() { a.Close(); b.Close() })
	return fds[0], a, b
}

// null opens n descriptors that stand for a command's streams.
func null(t *testing.T, n int) []int {
	t.Helper()
	fds := make([]int, n)
	for i := range fds {
		fd, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		fds[i] = fd
	}
	return fds
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestConnCarriesMessages(t *testing.T) {
	_, a, b := pair(t)
	for _, m := range messages {
		var fds []int
		if want := wantFDs(m); want > 0 {
			fds = null(t, want)
		}
		if err := a.Send(m, fds...); err != nil {
			t.Fatal(err)
		}
		got, gotFDs, err := b.Recv()
		if err != nil || got != m || len(gotFDs) != len(fds) {
			t.Errorf("Recv = %#v, %d descriptors, %v; sent %#v, %d", got, len(gotFDs), err, m, len(fds))
		}
		CloseFDs(gotFDs)
	}
}

func TestConnReceivesCloseOnExecCopies(t *testing.T) {
	_, a, b := pair(t)
	sent := null(t, 2)
	if err := a.Send(Start{Exec: 1, Stdio: Stdout}, sent...); err != nil {
		t.Fatal(err)
	}
	_, fds, err := b.Recv()
	if err != nil {
		t.Fatal(err)
	}
	defer CloseFDs(fds)
	for i, fd := range fds {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 || fd == sent[i] {
			t.Errorf("descriptor %d (sent as %d): flags %x, %v", fd, sent[i], flags, errno)
		}
	}
}

func TestConnRefusesOtherDescriptors(t *testing.T) {
	for name, tc := range map[string]struct {
		m    Message
		fds  int
		want FormatError
	}{
		"none with a start":       {Start{Exec: 1}, 0, "wrong number of descriptors"},
		"too few":                 {Start{Exec: 1, Stdio: allStdio}, 3, "wrong number of descriptors"},
		"too many":                {Start{Exec: 1, Stdio: Stdin}, 3, "wrong number of descriptors"},
		"without the held ones":   {Start{Exec: 1, Stdio: Stdin, Held: Stdin}, 2, "wrong number of descriptors"},
		"held, but not there":     {Held{Exec: 1, PID: 2, Stdio: Stdout}, 0, "wrong number of descriptors"},
		"more than any":           {Start{Exec: 1, Stdio: allStdio}, MaxFDs + 2, "too many descriptors"},
		"many more than any":      {Start{Exec: 1, Stdio: allStdio}, 200, "too many descriptors"},
		"with what never has any": {Signal{Exec: 1, Signal: 9}, 1, "wrong number of descriptors"},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, b := pair(t)
			fds := null(t, tc.fds)
			before := openFDs(t)
			if err := a.Send(tc.m, fds...); err != nil {
				t.Fatal(err)
			}
			m, got, err := b.Recv()
			if m != nil || got != nil || err != tc.want {
				t.Errorf("Recv = %v, %v, %v; want %v", m, got, err, tc.want)
			}
			if after := openFDs(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

// A PID 1 that is out of descriptors must be able to say so.
func TestConnOutOfDescriptors(t *testing.T) {
	_, a, b := pair(t)
	m := Start{Exec: 1, Stdio: allStdio, Held: allStdio}
	fds := null(t, wantFDs(m))
	before := openFDs(t)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(m, fds...); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(fds[len(fds)-1]) + 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	got, gotFDs, err := b.Recv()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if got != m || gotFDs != nil || err != ErrFiles {
		t.Errorf("Recv = %#v, %v, %v", got, gotFDs, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestConnTimeout(t *testing.T) {
	_, a, _ := pair(t)
	if err := a.SetTimeout(5); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Recv(); err != syscall.EAGAIN {
		t.Errorf("Recv of nothing: %v", err)
	}
	var err error
	for err == nil { // until the queue is full
		err = a.Send(Adopt{})
	}
	if err != syscall.EAGAIN {
		t.Errorf("Send to one that does not read: %v", err)
	}
}

func TestConnShutdown(t *testing.T) {
	_, a, _ := pair(t)
	done := make(chan error, 1)
	go func() { _, _, err := a.Recv(); done <- err }()
	a.Shutdown()
	if err := <-done; err != ErrClosed {
		t.Errorf("Recv: %v", err)
	}
}

func TestConnRefusesBadPackets(t *testing.T) {
	for packet, want := range map[string]FormatError{
		"\xff":                           "unknown kind",
		strings.Repeat("x", MaxPacket):   "unknown kind",
		strings.Repeat("x", MaxPacket+1): "packet too long",
		strings.Repeat("x", 100<<10):     "packet too long",
	} {
		raw, _, b := pair(t)
		if err := syscall.Sendto(raw, []byte(packet), 0, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Recv(); err != want {
			t.Errorf("Recv of %d bytes: %v, want %v", len(packet), err, want)
		}
	}
}

func TestConnSeesTheEnd(t *testing.T) {
	_, a, b := pair(t)
	if err := a.Send(Signal{Exec: 1, Signal: 9}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if m, _, err := b.Recv(); err != nil {
		t.Errorf("Recv of what was sent before the end: %v, %v", m, err)
	}
	if _, _, err := b.Recv(); err != ErrClosed {
		t.Errorf("Recv after the end: %v", err)
	}
	if err := b.Send(Signaled{Exec: 1}); err != syscall.EPIPE {
		t.Errorf("Send after the end: %v", err)
	}
}

// The last words of a peer count even if it ends with messages unread.
func TestConnReadsWhatWasSentBeforeAReset(t *testing.T) {
	_, a, b := pair(t)
	if err := b.Send(Adopt{}); err != nil { // is never read
		t.Fatal(err)
	}
	if err := a.Send(Release{Exec: 3}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if m, _, err := b.Recv(); m != (Release{Exec: 3}) || err != nil {
		t.Errorf("Recv = %#v, %v", m, err)
	}
	if _, _, err := b.Recv(); err != ErrClosed {
		t.Errorf("Recv after the end: %v", err)
	}
}

func TestDial(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(filepath.Join(dir, "absent")); err != syscall.ENOENT {
		t.Errorf("Dial of nothing: %v", err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	path := filepath.Join(dir, "s")
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(path); err != syscall.ECONNREFUSED {
		t.Errorf("Dial before listen: %v", err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
