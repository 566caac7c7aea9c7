package netns

import (
	"net"
	"testing"
	"time"
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
