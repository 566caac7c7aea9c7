package network

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What listens inside, in all of these tests, is an echo server on this port.
const insidePort = "8080"

// serve starts it.
func (s sandbox) serve(t *testing.T) {
	t.Helper()
	daemon.Run(t, "exec", "-d", s.id, "--", "/workspace/client", "serve", "127.0.0.1:"+insidePort)
	s.await(t, 10*time.Second, "echo ping", "echo", "127.0.0.1:"+insidePort)
}

// port is where the host reaches s, by what caisson port says.
func (s sandbox) port(t *testing.T) string {
	t.Helper()
	said := daemon.Run(t, "port", s.id).Stdout
	host, inside, found := strings.Cut(strings.TrimSpace(said), " -> ")
	if !found || inside != insidePort {
		t.Fatalf("caisson port: %q", said)
	}
	return host
}

// reached fails t unless what listens in s answers at the address, on the host.
func reached(t *testing.T, address string) {
	t.Helper()
	if said := outside(t, "echo", address); said != "echo ping" {
		t.Errorf("%s: %q", address, said)
	}
}

func notReached(t *testing.T, address string) {
	t.Helper()
	if said := outside(t, "echo", address); !strings.Contains(said, "error:") {
		t.Errorf("%s: %q", address, said)
	}
}

// A port is reached when it is published, by the host alone, and nothing else is:
// in every mode. Nothing gets out by it.
func TestPublish(t *testing.T) {
	asks(t, "inside.example")
	closed := create(t)
	closed.serve(t)
	notReached(t, "127.0.0.1:"+insidePort)
	for _, mode := range []string{"none", "allow", "open"} {
		t.Run(mode, func(t *testing.T) {
			s := sandbox{strings.TrimSpace(daemon.Run(t, "create", "--workspace", clientDir(t)+":ro", "--network", mode, "-p", "0:"+insidePort).Stdout), daemon}
			t.Cleanup(func() { daemon.Try("rm", "-f", s.id) }) // where it got no further
			s.serve(t)
			address := s.port(t)
			reached(t, address)
			at := netip.MustParseAddrPort(address)
			if !at.Addr().IsLoopback() {
				t.Errorf("published on %s", address)
			}
			for _, other := range []string{own, uplink} {
				notReached(t, netip.AddrPortFrom(netip.MustParseAddr(other), at.Port()).String())
			}
			if said := outside(t, "from", address); said != "from 127.0.0.1" {
				t.Errorf("inside it comes %q", said)
			}
			if said := s.try("echo", address); !strings.Contains(said, "error:") {
				t.Errorf("the host's port, from inside: %q", said)
			}
			if said := s.try("echo", "127.0.0.1:5432"); !strings.Contains(said, "refused") {
				t.Errorf("the host's loopback, from inside: %q", said)
			}
			if said := s.try("http", "http://inside.example/"); !strings.Contains(said, "error:") && !strings.Contains(said, "SBX-702") {
				t.Errorf("what is not allowed: %q", said)
			}
			var detail struct {
				Ports []struct {
					Address  string
					HostPort uint16 `json:"host_port"`
					Port     int
				}
			}
			daemon.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
			if len(detail.Ports) != 1 || detail.Ports[0].Port != 8080 || detail.Ports[0].HostPort != at.Port() {
				t.Errorf("inspect: %+v", detail)
			}
			daemon.Run(t, "rm", "-f", s.id)
			notReached(t, address)
		})
	}
}

// A server that listens on ::1 alone is reached in every mode.
func TestPublishIPv6(t *testing.T) {
	for _, mode := range []string{"none", "allow", "open"} {
		t.Run(mode, func(t *testing.T) {
			s := sandbox{strings.TrimSpace(daemon.Run(t, "create", "--workspace", clientDir(t)+":ro", "--network", mode, "-p", "0:"+insidePort).Stdout), daemon}
			t.Cleanup(func() { daemon.Try("rm", "-f", s.id) })
			notReached(t, s.port(t))
			daemon.Run(t, "exec", "-d", s.id, "--", "/workspace/client", "serve", "[::1]:"+insidePort)
			s.await(t, 10*time.Second, "echo ping", "echo", "[::1]:"+insidePort)
			reached(t, s.port(t))
		})
	}
}

// Servers that are told nothing listen on port 80. The host reaches one by a published port,
// another sandbox by a link.
func TestServeOnPort80(t *testing.T) {
	s := create(t, "--name", "served", "-p", "0:80", "--expose", "80")
	page := "echo page > /tmp/index.html && exec httpd -f -p 80 -h /tmp"
	daemon.Run(t, "exec", "-d", s.id, "--", "sh", "-c", page)
	s.await(t, 10*time.Second, "200 page", "http", "http://127.0.0.1/")
	address, _, _ := strings.Cut(daemon.Run(t, "port", s.id).Stdout, " ")
	if said := outside(t, "http", "http://"+address+"/"); said != "200 page" {
		t.Errorf("the host gets %q", said)
	}
	app := create(t, "--link", "web=served:80")
	if said := app.try("http", "http://web/"); said != "200 page" {
		t.Errorf("a link to it gives %q", said)
	}
	if said := daemon.Try("exec", s.id, "--", "httpd", "-f", "-p", "53").Stderr; !strings.Contains(said, "ermission denied") {
		t.Errorf("the gateway's port: %q", said)
	}
}

// Other addresses of the host are for who asks for them.
func TestPublishAddress(t *testing.T) {
	s := create(t, "-p", own+":0:"+insidePort)
	s.serve(t)
	address := s.port(t)
	reached(t, address)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	notReached(t, "127.0.0.1:"+port)
	every := create(t, "-p", "0.0.0.0:0:"+insidePort)
	every.serve(t)
	_, port, err = net.SplitHostPort(every.port(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"127.0.0.1", own, uplink} {
		reached(t, addr+":"+port)
	}
	if said := host.far.try(filepath.Join(clientDir(t), "client"), "echo", own+":"+port); said != "echo ping" {
		t.Errorf("from the world: %q", said)
	}
}

// A port that is published for some clients is reached by those alone, whatever becomes of the
// gateway and the daemon. The others are reset, and recorded.
func TestPublishForClients(t *testing.T) {
	s := create(t, "-p", "0.0.0.0:0:"+insidePort+"@127.0.0.0/8+"+control, "--name", "chosen")
	s.serve(t)
	said := strings.TrimSpace(daemon.Run(t, "port", s.id).Stdout)
	address, clients, _ := strings.Cut(said, " -> "+insidePort+" for ")
	if clients != "127.0.0.0/8, "+control+"/32" {
		t.Fatalf("caisson port: %q", said)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	far := func() string { return host.far.try(filepath.Join(clientDir(t), "client"), "echo", own+":"+port) }
	check := func(after string) {
		t.Helper()
		reached(t, "127.0.0.1:"+port)
		reached(t, own+":"+port)
		if said := far(); !strings.Contains(said, "error:") {
			t.Errorf("%s, from the world: %q", after, said)
		}
	}
	check("at first")
	if err := syscall.Kill(gateway(t, daemon), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	check("with another gateway")
	daemon.Kill(t)
	daemon.Launch(t)
	check("with another daemon")
	s.recorded(t, func(list []entry) bool {
		return slices.ContainsFunc(list, func(e entry) bool {
			return e.Kind == "inbound" && e.Verdict == "refused" && e.Port == 8080 && e.Code == "SBX-409" && !strings.HasPrefix(e.Peer, control+":")
		})
	})
	s.admits(t, port, far)
	every := create(t, "-p", "0.0.0.0:0:"+insidePort) // the control
	every.serve(t)
	if _, port, err = net.SplitHostPort(every.port(t)); err != nil {
		t.Fatal(err)
	}
	if said := far(); said != "echo ping" {
		t.Errorf("for all, from the world: %q", said)
	}
}

// admits has the clients of s, which serves at port, changed while it lives.
func (s sandbox) admits(t *testing.T, port string, far func() string) {
	t.Helper()
	publish := "0.0.0.0:" + port + ":" + insidePort
	over := holds(t, host.client(filepath.Join(clientDir(t), "client"), "hold", "127.0.0.1:"+port))
	var networks []string
	for i := range 255 {
		networks = append(networks, fmt.Sprintf("10.%d.0.0/16", i))
	}
	daemon.Run(t, "update", s.id, "-p", publish+"@"+strings.Join(networks, "+"))
	select {
	case said := <-over:
		if said != "ended" {
			t.Errorf("the held connection: %q", said)
		}
	case <-time.After(10 * time.Second):
		t.Error("a connection goes on")
	}
	notReached(t, "127.0.0.1:"+port)
	daemon.Kill(t)
	daemon.Launch(t)
	notReached(t, "127.0.0.1:"+port)
	for _, bad := range [][]string{{""}, {"0.0.0.0:1" + insidePort + ":" + insidePort}, {publish, "8081:3000"}, {publish + "@all"}} {
		args := []string{"update", "--json", s.id}
		for _, b := range bad {
			args = append(args, "-p", b)
		}
		daemon.Refused(t, "SBX-101", args...)
	}
	daemon.Run(t, "update", s.id, "-p", publish)
	reached(t, "127.0.0.1:"+port)
	if said := far(); said != "echo ping" {
		t.Errorf("for all, from the world: %q", said)
	}
}

// A port that is taken is refused with who has it; the gateway's own ports inside,
// and others that nothing there can have, are refused too.
func TestPublishRefuses(t *testing.T) {
	s := create(t, "--name", "holder", "-p", "0:"+insidePort)
	_, port, err := net.SplitHostPort(s.port(t))
	if err != nil {
		t.Fatal(err)
	}
	if f := daemon.Refused(t, "SBX-405", "create", "--json", "-p", port+":3000"); !strings.Contains(f.Error.Message, "sandbox holder publishes it") {
		t.Errorf("%+v", f)
	}
	daemon.Refused(t, "SBX-405", "create", "--json", "-p", "0.0.0.0:"+port+":3000")
	if f := daemon.Refused(t, "SBX-405", "run", "--json", "-p", "5432:3000", "--", "true"); strings.Contains(f.Error.Message, "sandbox holder") {
		t.Errorf("a program of the host: %+v", f)
	}
	for _, bad := range []string{"8081:1", "8081:53", "8081", "70000:8080", "web.example:8081:8080", "192.0.2.7:8081:8080", "8081:8080@", "8081:8080@10.0.0.1/8", "8081:8080@::1", "8081:8080@web.example"} {
		daemon.Refused(t, "SBX-101", "create", "--json", "-p", bad)
	}
	if list := daemon.Run(t, "ls", "--json").Stdout; strings.Count(list, `"id"`) < 1 || strings.Contains(list, `"creating"`) {
		t.Errorf("%s", list)
	}
}

// Every connection from outside has a record.
func TestPublishSeen(t *testing.T) {
	s := create(t, "-p", "0:"+insidePort)
	address := s.port(t)
	notReached(t, address) // nothing listens inside yet
	s.serve(t)
	reached(t, address)
	list := s.recorded(t, func(list []entry) bool { return len(list) >= 2 })
	if !slices.ContainsFunc(list, func(e entry) bool {
		return e.Kind == "inbound" && e.Verdict == "failed" && e.Port == 8080 && e.Code == "SBX-705"
	}) {
		t.Errorf("no failure in %+v", list)
	}
	if !slices.ContainsFunc(list, func(e entry) bool {
		return e.Kind == "inbound" && e.Verdict == "allowed" && e.Port == 8080 && e.Sent == 5 && strings.HasPrefix(e.Peer, control+":")
	}) {
		t.Errorf("no visit in %+v", list)
	}
	if r := daemon.Run(t, "policy", "log", s.id); !strings.Contains(r.Stdout, "inbound") || !strings.Contains(r.Stdout, "port 8080 from "+control+":") {
		t.Errorf("%s", r.Stdout)
	}
}

// A gateway that dies takes its connections with it, and the next one serves the
// same port.
func TestPublishGatewayDies(t *testing.T) {
	s := create(t, "-p", "0:"+insidePort)
	s.serve(t)
	address := s.port(t)
	reached(t, address)
	if err := syscall.Kill(gateway(t, daemon), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reached(t, address)
}

// A killed daemon leaves the port to the next one. What another program took
// meanwhile is missed, and the sandbox lives.
func TestPublishDaemonKilled(t *testing.T) {
	s, robbed := create(t, "-p", "0:"+insidePort), create(t, "-p", "0:"+insidePort)
	s.serve(t)
	robbed.serve(t)
	address, lost := s.port(t), robbed.port(t)
	reached(t, lost)
	daemon.Kill(t)
	notReached(t, address)
	thief, err := host.listenSoon(lost)
	if err != nil {
		t.Fatal(err)
	}
	daemon.Launch(t)
	reached(t, address)
	if again := s.port(t); again != address {
		t.Errorf("it was %s and is %s", address, again)
	}
	if said := daemon.Run(t, "port", robbed.id).Stdout; said != "" {
		t.Errorf("the one that is taken: %q", said)
	}
	if said := robbed.try("echo", "127.0.0.1:"+insidePort); said != "echo ping" {
		t.Errorf("its sandbox: %q", said)
	}
	if log := daemon.Log(); !strings.Contains(log, "publish ports again") {
		t.Error("there is no word of it")
	}
	if err := thief.Close(); err != nil {
		t.Fatal(err)
	}
	daemon.Kill(t)
	daemon.Launch(t)
	if again := robbed.port(t); again != lost {
		t.Errorf("when it is free again: %q", again)
	}
	reached(t, lost)
}

// A ready sandbox can be reached too.
func TestPublishFromPool(t *testing.T) {
	hits := ready(t, daemon, "ready")
	s := create(t, "--profile", "ready", "-p", "0:"+insidePort)
	if p := poolOf(t, daemon, "ready"); p.Hits != hits+1 {
		t.Errorf("it is not from the pool: %+v, %d hits before", p, hits)
	}
	s.serve(t)
	reached(t, s.port(t))
}

// More connections at once than there are sockets in stock.
func TestPublishMany(t *testing.T) {
	s := create(t, "-p", "0:"+insidePort)
	s.serve(t)
	address := s.port(t)
	const many = 200
	if said := outside(t, "many", address, strconv.Itoa(many)); said != "200 echoed" {
		t.Error(said)
	}
}

// A server with a small backlog is full at once. Clients wait until it has room.
func TestPublishToSmallBacklog(t *testing.T) {
	for backlog, many := range map[string]string{"1": "100", "5": "500"} {
		t.Run("backlog "+backlog, func(t *testing.T) {
			s := create(t, "-p", "0:"+insidePort)
			daemon.Run(t, "exec", "-d", s.id, "--", "/workspace/client", "serve", "127.0.0.1:"+insidePort, backlog)
			s.await(t, 10*time.Second, "echo ping", "echo", "127.0.0.1:"+insidePort)
			if said := outside(t, "many", s.port(t), many); said != many+" echoed" {
				t.Error(said)
			}
		})
	}
}

// moved is how many bytes the daemon counted of s.
func (s sandbox) moved(t *testing.T) (sent, received int64) {
	t.Helper()
	var detail struct {
		Egress struct {
			Sent     int64 `json:"sent_bytes"`
			Received int64 `json:"received_bytes"`
		}
	}
	s.of.Run(t, "inspect", s.id).JSONIn(t, "sandbox", &detail)
	return detail.Egress.Sent, detail.Egress.Received
}

// Bytes of connections to published ports are counted in every mode, also in the statistics,
// and a later daemon counts on.
func TestPublishedBytesAreCounted(t *testing.T) {
	for _, mode := range []string{"none", "allow"} {
		t.Run(mode, func(t *testing.T) {
			s := create(t, "--network", mode, "-p", "0:"+insidePort)
			s.serve(t)
			if sent, received := s.moved(t); sent != 0 || received != 0 {
				t.Fatalf("%d bytes sent and %d received before anybody came", sent, received)
			}
			for range 3 {
				reached(t, s.port(t))
			}
			const want = 3 * int64(len("ping\n"))
			check := func(when string) {
				var sent, received int64
				if !until(5*time.Second, func() bool { // its end of the connection may be counted after the caller's
					sent, received = s.moved(t)
					return sent == want && received == want
				}) {
					t.Errorf("%s: %d bytes sent and %d received, want %d of each", when, sent, received, want)
				}
			}
			check("with the daemon that served them")
			var used struct{ Sandboxes []linkBytes }
			if !until(10*time.Second, func() bool {
				s.of.Run(t, "stats", "--no-stream", "--json", s.id).JSON(t, &used)
				return used.Sandboxes[0].Sent == want
			}) {
				t.Errorf("statistics: %+v", used)
			}
			s.of.Kill(t)
			s.of.Launch(t)
			check("with the next daemon")
		})
	}
}
