package hostaddr

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/netbox"
)

// host is a namespace with a network, and its kernel.
type host struct {
	netbox.Box
	*Kernel
}

func newHost(t testing.TB) host {
	t.Helper()
	netbox.Need(t)
	h := host{Box: netbox.New(t)}
	var err error
	h.Do(func() { h.Kernel, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.run(t, "ip link set lo up")
	h.run(t, "ip link add up0 type veth peer name e0")
	h.run(t, "ip addr add 9.9.9.9/24 dev up0")
	h.run(t, "ip addr add 2a00:1450::9/64 dev up0 nodad")
	h.run(t, "ip link set up0 up")
	h.run(t, "ip link set e0 up")
	h.await("2a00:1450::9")
	return h
}

func (h host) run(t testing.TB, line string) {
	t.Helper()
	fields := strings.Fields(line)
	var out []byte
	var err error
	h.Do(func() { out, err = exec.Command(fields[0], fields[1:]...).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

func (h host) expect(t *testing.T, addr string, want bool) {
	t.Helper()
	if got, err := h.Local(netip.MustParseAddr(addr)); err != nil || got != want {
		t.Errorf("%s: %v, %v; want %v", addr, got, err, want)
	}
}

func (h host) await(addr string) {
	for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(time.Millisecond) {
		if own, err := h.Local(netip.MustParseAddr(addr)); own || err != nil {
			return
		}
	}
}

// The kernel of another namespace answers, and for what is there now.
func TestLocal(t *testing.T) {
	h := newHost(t)
	for _, addr := range []string{"127.0.0.1", "::1", "9.9.9.9", "9.9.9.255", "2a00:1450::9", "0.0.0.0"} {
		h.expect(t, addr, true)
	}
	others := []string{"9.9.9.8", "9.9.8.8", "2a00:1450::8", "2a00:1450:1::8"} // two of them with no way
	for _, addr := range others {
		h.expect(t, addr, false)
	}
	h.run(t, "ip route add default dev up0")
	h.run(t, "ip -6 route add default dev up0")
	for _, addr := range others {
		h.expect(t, addr, false)
	}
	h.expect(t, "224.0.0.1", true)
	h.expect(t, "255.255.255.255", true)
	for _, addr := range []string{"9.9.8.8", "2a00:1450:1::8"} {
		h.run(t, "ip addr add "+addr+" dev lo")
		h.await(addr) // the kernel takes its time with IPv6
		h.expect(t, addr, true)
		h.run(t, "ip addr flush to "+addr+" dev lo")
		h.expect(t, addr, false)
	}
	h.run(t, "ip route add local 9.9.7.0/24 dev lo")
	h.expect(t, "9.9.7.7", true)
}

// IPv6 has an address for any router of a link (RFC 4291, 2.6.1): a host that forwards
// takes what is sent there.
func TestAnycast(t *testing.T) {
	h := newHost(t)
	h.expect(t, "2a00:1450::", false)
	var err error
	h.Do(func() { err = os.WriteFile("/proc/sys/net/ipv6/conf/up0/forwarding", []byte("1"), 0) })
	if err != nil {
		t.Fatal(err)
	}
	h.expect(t, "2a00:1450::", true)
}

// Who cannot be asked does not say no.
func TestNobodyToAsk(t *testing.T) {
	k, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Local(netip.MustParseAddr("9.9.9.9")); err == nil {
		t.Error("a closed socket answers")
	}
	h := newHost(t)
	h.run(t, "ip route add prohibit 9.9.6.0/24")
	if _, err := h.Local(netip.MustParseAddr("9.9.6.6")); !errors.Is(err, unix.EACCES) {
		t.Errorf("prohibited: %v", err)
	}
}

// Many ask at once, and each gets its own answer.
func TestMany(t *testing.T) {
	h := newHost(t)
	var all sync.WaitGroup
	for range 8 {
		for addr, want := range map[string]bool{"9.9.9.9": true, "9.9.9.8": false, "9.9.8.8": false} {
			all.Go(func() {
				for range 200 {
					h.expect(t, addr, want)
				}
			})
		}
	}
	all.Wait()
}

// Nothing else is to be had from the socket, whoever has it. The control: another one.
func TestNothingElse(t *testing.T) {
	for what, request := range map[string][]byte{
		"devices": dump(unix.RTM_GETLINK), "addresses": dump(unix.RTM_GETADDR), "routes": dump(unix.RTM_GETROUTE), "neighbours": dump(unix.RTM_GETNEIGH), "rules": dump(unix.RTM_GETRULE),
	} {
		h := newHost(t) // the kernel makes one list at a time for a socket
		var free int
		var err error
		h.Do(func() { free, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE) })
		if err != nil {
			t.Fatal(err)
		}
		if n, err := answered(free, request); err != nil || n == 0 {
			t.Errorf("the control: %s: %d bytes, %v", what, n, err)
		}
		_ = unix.Close(free)
		if n, err := answered(h.fd, request); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
		h.expect(t, "9.9.9.9", true)
	}
}

// dump asks for all that there is of a kind.
func dump(kind uint16) []byte {
	b := question(netip.IPv4Unspecified(), 0)
	b = append(b[:unix.SizeofNlMsghdr:unix.SizeofNlMsghdr], make([]byte, unix.SizeofIfInfomsg)...)
	b[0], b[4], b[6], b[7] = byte(len(b)), byte(kind), unix.NLM_F_REQUEST, unix.NLM_F_DUMP>>8
	return b
}

func answered(fd int, request []byte) (int, error) {
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	n, _, err := unix.Recvfrom(fd, make([]byte, 1<<16), unix.MSG_DONTWAIT)
	return n, err
}

func FuzzParse(f *testing.F) {
	f.Add(question(netip.MustParseAddr("9.9.9.9"), 7))
	f.Add(make([]byte, 24))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parse(b); err == nil && a.errno == 0 && len(b) < 24 {
			t.Errorf("%x: %+v", b, a)
		}
	})
}

func BenchmarkLocal(b *testing.B) {
	h := newHost(b)
	h.run(b, "ip route add default dev up0")
	addr := netip.MustParseAddr("9.9.8.8")
	for b.Loop() {
		if _, err := h.Local(addr); err != nil {
			b.Fatal(err)
		}
	}
}
