package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns/nflog"
)

// Where the servers of these tests are. Each listens for TCP on port 80.
const (
	worldPublic   = "93.184.215.14:80"
	worldPrivate  = "10.9.8.7:80"
	worldMetadata = "169.254.169.254:80"
	hostPublic    = "8.8.4.4:80"
	hostUplink    = "198.51.100.1:80"
)

// town is a namespace that stands for the host's, with a link to one that stands
// for the world. The world knows the way back to addresses that nobody masks: what
// gets out without a mask is answered.
type town struct {
	host, world *Namespace
	bridge      *Bridge
	cfg         BridgeConfig
}

func newTown(t *testing.T) *town {
	t.Helper()
	town := &town{host: open(t, create(t)), world: open(t, create(t)), cfg: bridgeConfig()}
	if err := town.host.Do(func() error { return addLink("up0", "e0", town.world) }); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"addr add 198.51.100.1/24 dev up0", "link set up0 up", "route add default via 198.51.100.2", "addr add 8.8.4.4/32 dev lo"} {
		town.busybox(t, town.host, "ip "+line)
	}
	for _, line := range []string{
		"addr add 198.51.100.2/24 dev e0", "link set e0 up", "addr add 93.184.215.14/32 dev lo", "addr add 10.9.8.7/32 dev lo", "addr add 169.254.169.254/32 dev lo",
		"route add 10.87.0.0/24 via 198.51.100.1", "route add 8.8.4.4/32 via 198.51.100.1",
	} {
		town.busybox(t, town.world, "ip "+line)
	}
	town.awaitUplink(t)
	town.set(t, "net.ipv4.conf.up0.forwarding", "1")
	town.listen(t, town.host)
	town.listen(t, town.world)
	b, err := newBridge(town.cfg, &hostKernel{cfg: town.cfg, in: town.host.Do})
	if err != nil {
		t.Fatal(err)
	}
	town.bridge = b
	return town
}

// awaitUplink returns when the kernel has taken notice of both ends being up, which
// it shows in links and routes.
func (town *town) awaitUplink(t *testing.T) {
	t.Helper()
	k := &hostKernel{cfg: town.cfg, in: town.host.Do}
	err := k.with(func(h *netlink.Handle) error {
		for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(5 * time.Millisecond) {
			link, err := h.LinkByName("up0")
			if err != nil || link.Attrs().OperState == netlink.OperUp {
				return err
			}
		}
		return errors.New("the link to the world does not come up")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addLink makes a link from the calling thread's namespace to another.
func addLink(name, peer string, to *Namespace) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer, PeerNamespace: netlink.NsFd(to.file.Fd())})
}

func (*town) busybox(t *testing.T, n *Namespace, line string) string {
	t.Helper()
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.Command("busybox", strings.Fields(line)...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

func (town *town) set(t *testing.T, key, value string) {
	t.Helper()
	if err := town.host.Do(func() error { return writeSysctls([]Sysctl{{Key: key, Value: value}}) }); err != nil {
		t.Fatal(err)
	}
}

func (*town) listen(t *testing.T, n *Namespace) {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) { l, err = net.Listen("tcp4", "0.0.0.0:80"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// attach makes a sandbox with a link.
func (town *town) attach(t *testing.T, number uint32) (path string, n *Namespace) {
	t.Helper()
	path = create(t)
	if mended, err := town.bridge.Attach(path, number); err != nil || len(mended) > 0 {
		t.Fatal(mended, err)
	}
	t.Cleanup(func() {
		if err := town.bridge.Detach(number); err != nil {
			t.Error(err)
		}
	})
	return path, open(t, path)
}

// mend makes another sandbox with a link, and returns what that mended.
func (town *town) mend(t *testing.T) []Difference {
	t.Helper()
	mended, err := town.bridge.Attach(create(t), 99)
	if err := errors.Join(err, town.bridge.Detach(99)); err != nil {
		t.Fatal(err)
	}
	return mended
}

func wantReached(t *testing.T, from *Namespace, to, when string) {
	t.Helper()
	if err := connectInside(t, from, to, false); err != nil {
		t.Errorf("%s: connect to %s: %v", when, to, err)
	}
}

// wantShut expects that none of them is reached. They are tried at the same time:
// most of it is waiting for an answer.
func wantShut(t *testing.T, from *Namespace, when string, to ...string) {
	t.Helper()
	var wg sync.WaitGroup
	for _, to := range to {
		wg.Go(func() {
			if err := connectInside(t, from, to, false); err == nil {
				t.Errorf("%s: %s is reached", when, to)
			}
		})
	}
	wg.Wait()
}

// disarm takes away what refuses inside, so that the host's side stands alone.
func disarm(t *testing.T, b backend, n *Namespace) {
	t.Helper()
	for _, line := range []string{"-F"} {
		runInside(t, n, fmt.Sprintf("iptables-%s -w %s", b, line))
	}
}

func TestBridgeReaches(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		town := newTown(t)
		path, n := town.attach(t, 0)
		_, other := town.attach(t, 1)
		town.listen(t, other)
		const neighbour = "10.87.0.2:80"
		for _, to := range []string{worldPublic, worldPrivate, worldMetadata} {
			wantReached(t, town.host, to, "control, from the host")
		}
		wantReached(t, town.world, hostPublic, "control, from the world")
		wantReached(t, other, neighbour, "control, from itself")
		wantReached(t, n, worldPublic, "from a sandbox")
		refused := []string{worldPrivate, worldMetadata, hostPublic, hostUplink, neighbour, "10.87.0.1:22"}
		wantShut(t, n, "from a sandbox", refused...)
		wantShut(t, town.host, "from the host", neighbour)
		wantShut(t, town.world, "from the world", neighbour)
		if diffs, err := town.bridge.Check(path, 0); err != nil || len(diffs) > 0 {
			t.Errorf("Check = %v, %v", diffs, err)
		}
		if diffs := town.examine(t); len(diffs) > 0 {
			t.Errorf("examined: %v", diffs)
		}
		disarm(t, b, n)
		disarm(t, b, other)
		wantShut(t, n, "with nothing refused inside", refused...)
		if diffs, err := town.bridge.Check(path, 0); err != nil || len(diffs) == 0 {
			t.Errorf("Check of changed rules = %v, %v", diffs, err)
		}
		// P099: another's address, and one that is nobody's.
		for _, source := range []string{"10.87.0.2", "10.87.0.99", "93.184.215.99"} {
			town.busybox(t, n, "ip addr add "+source+"/32 dev lo")
			if err := connectFrom(t, n, source, worldPublic); err == nil {
				t.Errorf("with the address %s the world answers", source)
			}
		}
		if err := connectFrom(t, n, "10.87.0.1", worldPublic); err != nil {
			t.Errorf("control, with its own address: %v", err)
		}
		runInside(t, town.host, fmt.Sprintf("iptables-%s -w -t mangle -D %s -d 10.0.0.0/8 -j DROP", b, town.cfg.chain("PRE")))
		wantReached(t, n, worldPrivate, "control, without the rule of the host")
	})
}

// Each refused packet is told, and none that leaves or stays inside.
func TestBridgeDropLog(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend) {
		town := newTown(t)
		path, n := town.attach(t, 0)
		log := dropLog(t, path)
		if _, err := DropLog(path); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
			t.Errorf("a second one: %v", err)
		}
		var refused []nflog.Packet
		tell := func(proto byte, to string) {
			refused = append(refused, nflog.Packet{Group: nflog.Refused, Protocol: proto, Destination: netip.MustParseAddrPort(to), Opens: true})
		}
		for to, left := range map[string]bool{worldPublic: true, worldPrivate: false, worldMetadata: false, hostPublic: true, "[2606:4700::1]:80": false} {
			if !left {
				tell(unix.IPPROTO_TCP, to)
			}
			if err := connectInside(t, n, to, false); (err == nil) != (to == worldPublic) {
				t.Errorf("connect to %s: %v", to, err)
			}
		}
		connect := connectInside(t, n, "127.0.0.1:9", false) // it stays inside
		for to, left := range map[string]bool{"93.184.215.14:9": true, "10.53.0.1:53": true, "10.53.0.1:54": false, "224.0.0.251:5353": false} {
			at := netip.MustParseAddrPort(to)
			fd := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
			for range 3 { // nobody answers
				if !left {
					tell(unix.IPPROTO_UDP, to)
				}
				_ = unix.Sendto(fd, []byte("hello"), 0, sockaddr(at)) // it may be refused
			}
		}
		town.busybox(t, n, "ip addr add 10.87.0.99/32 dev lo")
		tell(unix.IPPROTO_TCP, worldPublic)
		if err := connectFrom(t, n, "10.87.0.99", worldPublic); err == nil || connect == nil {
			t.Errorf("from another address: %v; to nobody inside: %v", err, connect)
		}
		const last = "10.1.1.1:1"
		_ = connectInside(t, n, last, false)
		wantTold(t, log, last, refused)
	})
}

// The bytes of a link are those of packets that leave and arrive, whichever daemon asks.
func TestBridgeBytes(t *testing.T) {
	needRoot(t)
	town := newTown(t)
	_, n := town.attach(t, 0)
	town.listen(t, n)
	bytes := func(b *Bridge) (sent, received uint64) {
		t.Helper()
		sent, received, err := b.Bytes(0)
		if err != nil {
			t.Fatal(err)
		}
		return sent, received
	}
	for _, to := range []string{"127.0.0.1:80", "10.87.0.1:80"} {
		wantReached(t, n, to, "inside")
	}
	for _, to := range []string{worldPrivate, "[2606:4700::1]:80"} {
		wantShut(t, n, "from a sandbox", to)
	}
	if sent, received := bytes(town.bridge); sent+received > 0 {
		t.Errorf("%d and %d bytes when nothing left", sent, received)
	}
	fd := socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false)
	const packets, each = 100, 14 + 20 + 8 + 1000 // with the headers of Ethernet, IP and UDP
	for range packets {
		err := again(func() error {
			return unix.Sendto(fd, make([]byte, 1000), 0, sockaddr(netip.MustParseAddrPort("93.184.215.14:9")))
		})
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	later := town.later(t)
	for _, b := range []*Bridge{town.bridge, later} { // the world answers that nobody listens
		if sent, received := bytes(b); sent != packets*each || received == 0 || received > sent {
			t.Errorf("%d and %d bytes, want %d sent", sent, received, packets*each)
		}
	}
	if _, _, err := later.Bytes(1); err == nil {
		t.Error("a link that is absent has bytes")
	}
}

// wantTold expects to be told of exactly those, in any order, before the last one.
func wantTold(t *testing.T, socket *os.File, last string, want []nflog.Packet) {
	t.Helper()
	byText := func(a, b nflog.Packet) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	got := slices.SortedFunc(slices.Values(told(t, socket, netip.MustParseAddrPort(last))), byText)
	if want := slices.SortedFunc(slices.Values(want), byText); !slices.Equal(got, want) {
		t.Errorf("told of\n%v, want\n%v", got, want)
	}
}

// dropLog is the drop log of the namespace at path.
func dropLog(t *testing.T, path string) *os.File {
	t.Helper()
	log, err := DropLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func connectFrom(t *testing.T, n *Namespace, source, to string) error {
	t.Helper()
	addr := netip.MustParseAddrPort(to)
	fd := socketInside(t, n, unix.AF_INET, unix.SOCK_STREAM, 0, false)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr(source).As4()}); err != nil {
		t.Fatal(err)
	}
	return dial(fd, sockaddr(addr))
}

// F20: whatever table is flushed, by itself or with all others, what was refused
// stays refused, nothing leaves unmasked, and the next link puts it right.
//
//caisson:host a minute of emulation; the same watcher on every kernel
func TestBridgeFlushed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		town := newTown(t)
		_, n := town.attach(t, 0)
		disarm(t, b, n)
		refused := []string{worldPrivate, worldMetadata, hostPublic, hostUplink}
		for _, tt := range []struct {
			tables   []string
			rpFilter string // the host's own choice for all links
		}{{[]string{"filter"}, "0"}, {[]string{"mangle"}, "0"}, {[]string{"nat"}, "0"}, {[]string{"mangle", "nat", "filter"}, "1"}, {[]string{"mangle", "nat", "filter"}, "2"}} {
			when := fmt.Sprintf("%s flushed, rp_filter %s", tt.tables, tt.rpFilter)
			town.set(t, "net.ipv4.conf.all.rp_filter", tt.rpFilter)
			wantReached(t, n, worldPublic, "before")
			for _, name := range tt.tables {
				runInside(t, town.host, fmt.Sprintf("iptables-%s -w -t %s -F", b, name))
			}
			if slices.Equal(tt.tables, []string{"filter"}) {
				wantShut(t, n, when, refused...)
				wantReached(t, n, worldPublic, when) // what is masked, and refused by nobody
			} else {
				wantShut(t, n, when, append(refused, worldPublic)...)
			}
			if found, mended := town.examine(t), town.mend(t); len(found) == 0 || !slices.Equal(found, mended) {
				t.Errorf("%s: examined %v, mended %v", when, found, mended)
			}
			wantReached(t, n, worldPublic, when+" and mended")
		}
		for name, routes := range map[string]netlink.Route{
			"refusing route": {Table: unix.RT_TABLE_MAIN, Protocol: tetherProtocol}, "route to the sandbox": {Table: town.cfg.table(), Protocol: tetherProtocol},
		} {
			town.flushRoutes(t, routes)
			wantShut(t, n, name, worldPrivate)
			if found, mended := town.examine(t), town.mend(t); len(found) != 1 || !slices.Equal(found, mended) {
				t.Errorf("%s: examined %v, mended %v", name, found, mended)
			}
			wantReached(t, n, worldPublic, name+" mended")
		}
		town.busybox(t, town.host, "ip rule del pref 21000")
		wantShut(t, n, "routing rule", worldPrivate, worldPublic)
		if found, mended := town.examine(t), town.mend(t); len(found) != 1 || !slices.Equal(found, mended) {
			t.Errorf("routing rule: examined %v, mended %v", found, mended)
		}
		wantReached(t, n, worldPublic, "routing rule mended")
	})
}

// later is the Bridge of a later daemon.
func (town *town) later(t *testing.T) *Bridge {
	t.Helper()
	b, err := newBridge(town.cfg, &hostKernel{cfg: town.cfg, in: town.host.Do})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// examine is what the doctor finds.
func (town *town) examine(t *testing.T) []Difference {
	t.Helper()
	found, err := (&hostKernel{cfg: town.cfg, in: town.host.Do}).examine()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (town *town) flushRoutes(t *testing.T, like netlink.Route) {
	t.Helper()
	k := &hostKernel{cfg: town.cfg, in: town.host.Do}
	err := k.with(func(h *netlink.Handle) error {
		routes, err := h.RouteListFiltered(netlink.FAMILY_V4, &like, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if len(routes) == 0 && err == nil {
			t.Errorf("there are no routes like %v", like)
		}
		for _, r := range routes {
			err = errors.Join(err, h.RouteDel(&r))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A host that drops what it forwards lets sandboxes through, and its own rules
// bind them.
func TestBridgeHostRules(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		town := newTown(t)
		run := func(line string) { t.Helper(); runInside(t, town.host, fmt.Sprintf("iptables-%s -w %s", b, line)) }
		run("-P FORWARD DROP")
		path, n := town.attach(t, 0)
		wantReached(t, n, worldPublic, "with the policy DROP")
		run("-I FORWARD -d 93.184.215.14 -j DROP")
		wantShut(t, n, "refused by the host", worldPublic)
		run("-D FORWARD 1")
		wantReached(t, n, worldPublic, "again")
		outer := town.cfg.outer(0)
		for _, key := range []string{"ipv4.conf." + outer + ".rp_filter", "ipv4.conf." + outer + ".src_valid_mark", "ipv4.conf." + outer + ".forwarding", "ipv6.conf." + outer + ".disable_ipv6"} {
			town.set(t, "net."+key, "0")
			if diffs, err := town.bridge.Check(path, 0); err != nil || len(diffs) != 1 {
				t.Errorf("%s: Check = %v, %v", key, diffs, err)
			}
			found := town.examine(t)
			if mended, err := town.later(t).Adopt(0); err != nil || len(found) != 1 || !slices.Equal(found, mended) {
				t.Errorf("%s: examined %v, mended %v, %v", key, found, mended, err)
			}
		}
		if diffs, err := town.bridge.Check(path, 0); err != nil || len(diffs) > 0 {
			t.Errorf("mended: %v, %v", diffs, err)
		}
		wantReached(t, n, worldPublic, "with the settings mended")
		town.set(t, "net.ipv4.conf."+outer+".rp_filter", "0")
		town.flushRoutes(t, netlink.Route{Table: town.cfg.table(), Protocol: tetherProtocol})
		if mended := town.mend(t); len(mended) != 2 || len(town.examine(t)) > 0 {
			t.Errorf("a route comes back with its link's settings: mended %v", mended)
		}
		town.busybox(t, town.host, "ip link del "+outer) // F24: the sandbox's network is dead, and that is said
		if diffs, err := town.bridge.Check(path, 0); err != nil || len(diffs) == 0 || diffs[0].Name != "link" {
			t.Errorf("without the link: Check = %v, %v", diffs, err)
		}
		if mended := town.mend(t); len(mended) > 0 {
			t.Errorf("without the link: mended %v", mended)
		}
	})
}

// One sandbox does not fill the host's table of connections.
//
//caisson:host a minute of emulation; TestBridgeReaches looks at the same rules here
func TestBridgeFlows(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		town := newTown(t)
		path, n := town.attach(t, 0)
		flood := func() (held, refused int) {
			to := netip.MustParseAddrPort("93.184.215.14:9")
			err := n.Do(func() error {
				for range maxFlows + 500 {
					fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
					if err != nil {
						return err
					}
					if err = unix.Sendto(fd, []byte("x"), 0, sockaddr(to)); errors.Is(err, unix.EPERM) {
						refused, err = refused+1, nil
					}
					if err := errors.Join(err, unix.Close(fd)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			held, err = strconv.Atoi(strings.TrimSpace(town.busybox(t, town.host, "cat /proc/sys/net/netfilter/nf_conntrack_count")))
			if err != nil {
				t.Fatal(err)
			}
			return held, refused
		}
		about := func(n, want int) bool { return n > want-100 && n < want+100 }
		log := dropLog(t, path)
		held, refused := flood()
		if !about(held, maxFlows) || refused < 50 { // some have a port that another had
			t.Errorf("%d connections are held and %d are refused, want about %d and the rest", held, refused, maxFlows)
		}
		one := netip.MustParseAddrPort("93.184.215.14:10")
		if err := unix.Sendto(socketInside(t, n, unix.AF_INET, unix.SOCK_DGRAM, 0, false), []byte("x"), 0, sockaddr(one)); !errors.Is(err, unix.EPERM) {
			t.Errorf("one more: %v", err)
		}
		_ = connectInside(t, n, "10.1.1.1:1", false) // the last one
		wantTold(t, log, "10.1.1.1:1", []nflog.Packet{{Group: nflog.Limited, Protocol: unix.IPPROTO_UDP, Destination: one, Opens: true}})
		disarm(t, b, n)
		if held, refused := flood(); !about(held, maxFlows) || refused > 0 {
			t.Errorf("without the rule inside %d connections are held and %d are refused, want about %d and none", held, refused, maxFlows)
		}
		runInside(t, town.host, fmt.Sprintf("iptables-%s -w -t mangle -D %s 3", b, town.cfg.chain("PRE")))
		if held, _ := flood(); held <= maxFlows+100 {
			t.Errorf("the control, without the rule: %d connections", held)
		}
	})
}

// everything is all that there is in the host's namespace.
func (town *town) everything(t *testing.T, b backend) string {
	t.Helper()
	var all strings.Builder
	for _, line := range []string{"ip link", "ip addr", "ip rule", "ip route show table all"} {
		// The kernel looks for another owner of an address for a while (RFC 4862), whoever is there.
		all.WriteString(strings.ReplaceAll(town.busybox(t, town.host, line), " tentative", ""))
	}
	err := town.host.Do(func() error {
		use, err := readTablesInUse()
		for _, f := range []family{familyV4, familyV6} {
			c, findErr := findCommand(f, b)
			err = errors.Join(err, findErr)
			for _, table := range use.shown(f, c.backend) {
				chains, listErr := c.ListChains(table)
				err = errors.Join(err, listErr)
				for _, name := range chains {
					lines, listErr := c.List(table, name)
					err = errors.Join(err, listErr)
					if !slices.Equal(lines, chain{name: name}.lines()) { // one with no rule is what asking for it makes
						fmt.Fprintf(&all, "%s %s\n", table, lines)
					}
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestBridgeLeavesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		town := newTown(t)
		runInside(t, town.host, fmt.Sprintf("iptables-%s -w -t nat -A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE", b)) // somebody else's
		before := town.everything(t, b)
		for _, number := range []uint32{3, 4} {
			if _, err := town.bridge.Attach(create(t), number); err != nil {
				t.Fatal(err)
			}
		}
		if town.everything(t, b) == before {
			t.Fatal("the control: nothing is seen of two sandboxes")
		}
		later, err := newBridge(BridgeConfig{Instance: town.cfg.Instance}, &hostKernel{cfg: BridgeConfig{Instance: town.cfg.Instance}, in: town.host.Do})
		if err != nil || !later.InUse() {
			t.Fatalf("a later daemon without the mode sees nothing: %v", err)
		}
		if err := later.Detach(3); err != nil {
			t.Fatal(err)
		}
		if err := later.Settle(); err != nil {
			t.Fatal(err)
		}
		if after := town.everything(t, b); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// Many at the same time come and go, the last with all that they share.
//
//caisson:host an emulated processor is too slow for many at once
func TestBridgeAtOnce(t *testing.T) {
	needRoot(t)
	town := newTown(t)
	before := town.everything(t, backendAny)
	for range 3 {
		var wg sync.WaitGroup
		for number := range uint32(8) {
			path := create(t)
			wg.Go(func() {
				if mended, err := town.bridge.Attach(path, number); err != nil || len(mended) > 0 {
					t.Error(mended, err)
				}
				if diffs, err := town.bridge.Check(path, number); err != nil || len(diffs) > 0 {
					t.Errorf("Check = %v, %v", diffs, err)
				}
				if err := town.bridge.Detach(number); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if after := town.everything(t, backendAny); after != before || town.bridge.InUse() {
			t.Fatalf("before:\n%s\nafter:\n%s", before, after)
		}
	}
}

// A later daemon with another subnet finds that a sandbox has an address of the old
// one, and its own take the place of what was shared.
func TestBridgeOtherSubnet(t *testing.T) {
	needRoot(t)
	town := newTown(t)
	path, old := town.attach(t, 0)
	cfg := town.cfg
	cfg.Subnet = netip.MustParsePrefix("10.88.0.0/24")
	later, err := newBridge(cfg, &hostKernel{cfg: cfg, in: town.host.Do})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := later.Adopt(0); err != nil {
		t.Fatal(err)
	}
	if diffs, err := later.Check(path, 0); err != nil || len(diffs) == 0 {
		t.Errorf("Check = %v, %v; want differences", diffs, err)
	}
	wantShut(t, old, "with an address of before", worldPublic)
	fresh := create(t)
	if err := later.Detach(0); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Attach(fresh, 0); err != nil {
		t.Fatal(err)
	}
	wantReached(t, open(t, fresh), worldPublic, "with one of the new subnet")
	if err := later.Detach(0); err != nil {
		t.Error(err)
	}
}

func TestBridgeRefusals(t *testing.T) {
	needRoot(t)
	town := newTown(t)
	refused := func(reason string) {
		t.Helper()
		path := create(t)
		_, err := town.bridge.Attach(path, 0)
		if sbxerr.Of(err) != sbxerr.NetworkMode || !strings.Contains(err.Error(), reason) || sbxerr.RemedyOf(err) == "" {
			t.Errorf("Attach = %v (remedy %q), want %q", err, sbxerr.RemedyOf(err), reason)
		}
		if links, err := town.bridge.host.Links(); err != nil || len(links) > 0 || town.bridge.InUse() {
			t.Errorf("left %v, %v", links, err)
		}
	}
	town.set(t, "net.ipv4.conf.up0.forwarding", "0")
	refused(`forwards nothing that comes from "up0"`)
	town.set(t, "net.ipv4.conf.up0.forwarding", "1")
	town.busybox(t, town.host, "ip route add 10.87.0.128/25 via 198.51.100.2")
	refused("has a route to 10.87.0.128/25")
	town.busybox(t, town.host, "ip route del 10.87.0.128/25")
	town.busybox(t, town.host, "ip route del default")
	refused("has no way out itself")
	useCommands(t, nil)
	town.busybox(t, town.host, "ip route add default via 198.51.100.2")
	path := create(t)
	if _, err := town.bridge.Attach(path, 0); sbxerr.Of(err) != sbxerr.NetRule {
		t.Errorf("without iptables: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
