package netns

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A socket that was opened inside connects to what listens inside, under the rules
// of a redirect, and to nothing of the host's; the namespace stays as declared.
func TestOpenSockets(t *testing.T) {
	path := create(t)
	redirect := Redirect{Prefixes: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}}
	gateSockets, err := programAndInstall(path, redirect)
	if err != nil {
		t.Fatal(err)
	}
	defer gateSockets.Close()
	outside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	const port = 8080
	ns, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var inside net.Listener
	if err := ns.Do(func() (err error) {
		inside, err = net.Listen("tcp4", "127.0.0.1:8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	sockets, err := OpenSockets(path, 2)
	if err != nil || len(sockets) != 2 {
		t.Fatalf("%d sockets, %v", len(sockets), err)
	}
	for _, f := range sockets {
		defer f.Close()
	}
	if err := connect(sockets[0], port); err != nil {
		t.Errorf("to what listens inside: %v", err)
	}
	if err := inside.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if c, err := inside.Accept(); err != nil {
		t.Errorf("it does not arrive: %v", err)
	} else {
		_ = c.Close()
	}
	hostPort := outside.Addr().(*net.TCPAddr).Port
	if c, err := net.Dial("tcp4", outside.Addr().String()); err != nil {
		t.Fatalf("the control: %v", err)
	} else {
		_ = c.Close()
	}
	if err := connect(sockets[1], hostPort); err == nil {
		t.Error("to what listens on the host")
	}
	if found, err := Check(path, &redirect); err != nil || len(found) > 0 {
		t.Errorf("afterwards: %v, %v", found, err)
	}
}

// connect waits for the end of a connection that is made in the background.
func connect(f *os.File, port int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	var inner error
	err = raw.Write(func(fd uintptr) bool {
		inner = unix.Connect(int(fd), &unix.SockaddrInet6{Port: port, Addr: gateAddress.As16()})
		return inner != unix.EINPROGRESS && inner != unix.EALREADY
	})
	if err == nil && inner != unix.EISCONN {
		err = inner
	}
	return err
}
