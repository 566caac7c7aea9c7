package netns

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Connections count until they are accepted.
func TestUnaccepted(t *testing.T) {
	path := create(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, made := unacceptedIn(t, path, address)
		want := int64(len(made)) * (socketSize + 4<<10)
		got := int64(0)
		for range 100 { // what was sent is received a moment later
			var err error
			if got, err = Unaccepted(path); err != nil {
				t.Fatal(err)
			}
			if got >= want {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got < want {
			t.Errorf("%s: %d bytes, want %d", address, got, want)
		}
		for range made {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if got, err := Unaccepted(path); got != 0 || err != nil {
			t.Errorf("%s: %d bytes after all was accepted, %v", address, got, err)
		}
	}
}

// unacceptedIn listens in the namespace at path, and makes connections with 4 KiB each.
func unacceptedIn(t *testing.T, path, address string) (l net.Listener, made []net.Conn) {
	t.Helper()
	ns, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		for range 16 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := c.Write(make([]byte, 4<<10)); err != nil {
				return err
			}
			made = append(made, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, made
}

// What a look at one sandbox costs, in which nothing waits.
func BenchmarkUnaccepted(b *testing.B) {
	path := create(b)
	for b.Loop() {
		if _, err := Unaccepted(path); err != nil {
			b.Fatal(err)
		}
	}
}

// A listener keeps no more connections than the settings of the namespace say. With
// those of the host it keeps them all.
func TestListenersAreBounded(t *testing.T) {
	const attempts, bound = 300, 128
	path := create(t)
	if got := waiting(t, path, attempts); got > bound+1 { // the kernel takes one more
		t.Errorf("%d connections wait, want at most %d", got, bound+1)
	}
	n := open(t, path)
	if err := n.Do(func() error { return writeSysctls([]Sysctl{{Key: "net.core.somaxconn", Value: "4096"}}) }); err != nil {
		t.Fatal(err)
	}
	if got := waiting(t, path, attempts); got != attempts {
		t.Errorf("%d connections wait where %d may: this proves nothing", got, attempts)
	}
}

// waiting makes connections that nobody accepts, and returns how many of them wait.
func waiting(t *testing.T, path string, attempts int) (n int) {
	t.Helper()
	err := open(t, path).Do(func() error {
		l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(l)
		if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 4096)); err != nil {
			return err
		}
		to, err := unix.Getsockname(l)
		if err != nil {
			return err
		}
		for range attempts {
			c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer unix.Close(c)
			if err := unix.Connect(c, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return err
			}
		}
		return diagnose(unix.AF_INET, 1<<tcpListen, func(s diagnosed) { n += int(s.queued) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
