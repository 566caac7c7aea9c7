// Package netbox makes network namespaces like those of sandboxes for the tests
// of what leads out of them.
package netbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/tests/need"
)

// Need skips t unless network namespaces, and rules in them, can be made, and the
// other tools are there.
func Need(t testing.TB, tools ...string) {
	t.Helper()
	need.Root(t, "it makes network namespaces")
	need.Tools(t, append([]string{"ip", "iptables"}, tools...)...)
}

// Box is a network namespace with only lo, which is down. Functions that are sent
// to it run there, one after the other, on one thread.
type Box chan func()

// New makes a box that is there as long as the test.
func New(t testing.TB) Box {
	t.Helper()
	b := make(Box)
	made := make(chan error)
	go onThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if made <- err; err != nil {
			return
		}
		for fn := range b {
			fn()
		}
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(b) })
	return b
}

// Do runs fn in the namespace. What fn starts as a goroutine runs outside.
func (b Box) Do(fn func()) {
	done := make(chan struct{})
	b <- func() { defer close(done); fn() }
	<-done
}

// onThread runs fn on a thread that ends with it, and the namespace that it
// entered. The first thread of a process cannot end, so it only waits.
func onThread(fn func()) {
	goruntime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn() // never unlocked
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onThread(fn) }()
	<-done
	goruntime.UnlockOSThread()
}

// Sockets are those by which the gateway serves a namespace.
type Sockets struct {
	TCP       *net.TCPListener // to which the rule leads all that goes to the pool
	DNS       *net.UDPConn
	DNSStream *net.TCPListener
	DropLog   *os.File // of Open alone: it is told of UDP to the pool
}

// Open sets up the namespace of the calling thread like a sandbox's: its way, its
// sockets, and the rules that lead the pool of addresses to the first of them and tell
// the last one of UDP.
func Open() (Sockets, error) {
	// Without src the kernel finds no source address on lo, and takes 0.0.0.0.
	for _, line := range []string{"ip link set lo up", "ip route add local 198.18.0.0/15 dev lo src 127.0.0.1"} {
		if err := command(line); err != nil {
			return Sockets{}, err
		}
	}
	s, err := Listen(53)
	if err != nil {
		return Sockets{}, err
	}
	if s.DropLog, err = netns.OpenDropLog(); err != nil {
		return Sockets{}, err
	}
	return s, errors.Join(
		command("iptables -w -t nat -A OUTPUT -p tcp -d 198.18.0.0/15 -j REDIRECT --to-ports "+strconv.Itoa(s.TCP.Addr().(*net.TCPAddr).Port)),
		command("iptables -w -A OUTPUT -p udp -d 198.18.0.0/15 -j NFLOG --nflog-group "+strconv.Itoa(int(nflog.Refused))),
	)
}

// Listen opens the sockets in the namespace of the calling thread, those for
// questions at a port of its own.
func Listen(dns int) (Sockets, error) {
	var s Sockets
	var errs [3]error
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(dns))
	s.TCP, errs[0] = listenTCP("127.0.0.1:0")
	s.DNSStream, errs[1] = listenTCP(at)
	var pc net.PacketConn
	if pc, errs[2] = net.ListenPacket("udp4", at); errs[2] == nil {
		s.DNS = pc.(*net.UDPConn)
	}
	return s, errors.Join(errs[:]...)
}

func listenTCP(address string) (*net.TCPListener, error) {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// command runs a program in the namespace of the calling thread.
func command(line string) error {
	fields := strings.Fields(line)
	if out, err := exec.Command(fields[0], fields[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}
