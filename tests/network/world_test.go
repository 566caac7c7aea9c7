package network

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// Where the services of the world are.
const (
	public    = "93.184.215.14" // HTTP on 80, TLS on 443, an echo on 5432
	elsewhere = "93.184.215.99" // the same, under other names
	private   = "10.9.8.7"      // the same
	mirror    = "10.9.8.8"      // the same; the operator's mirror.example
	metadata  = "169.254.169.254"
	resolver  = "127.0.0.53"
	publicV6  = "2606:4700:4700::1111" // the same

	// Who runs unconfined comes from these.
	control   = "192.0.2.77"
	controlV6 = "2001:db8::77"
)

// metadataServices are those of other clouds.
var metadataServices = []string{"169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"}

// world is a network namespace with servers in it.
type world struct {
	dir     string
	ns      *netns.Namespace
	source  string                       // of who runs in it unconfined, as the client wants it
	lookout *lookout                     // nil where nobody looks
	inside  map[*harness.Daemon]*watcher // those of the daemons in it
	dns     *zone
	mu      sync.Mutex
	open    []io.Closer
}

func newWorld() (*world, error) {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-world-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, dns: newZone(), source: control + "," + controlV6}
	if err := w.build(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) path() string { return filepath.Join(w.dir, "netns") }

func (w *world) build() error {
	if err := netns.Create(w.path()); err != nil {
		return err
	}
	var err error
	if w.ns, err = netns.Open(w.path()); err != nil {
		return err
	}
	for _, addr := range append([]string{public, elsewhere, private, mirror, metadata, publicV6, control, controlV6}, metadataServices...) {
		line := append(w.enter(), "ip", "addr", "add", addr, "dev", "lo")
		if strings.Contains(addr, ":") {
			line = append(line, "nodad") // it can be listened at, at once
		}
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", line, err, out)
		}
	}
	return w.serve()
}

// enter is what is put before a command line that is to run in the world.
func (w *world) enter() []string { return []string{"nsenter", "--net=" + w.path(), "--"} }

// config is what the daemon has to know.
func (w *world) config() string {
	return "network:\n  dns: [" + resolver + "]\n  map: {mirror.example: \"" + mirror + ":80\"}\n" +
		"profiles:\n  web: {network: {allow: [web.example], deny: [bad.web.example]}}\n" +
		"  ready: {}\npools:\n  - {profile: ready, size: 1}\n"
}

// watch begins to look at all packets in w, until it is closed.
func (w *world) watch(harmless func(packet) bool) error {
	c, err := newCapture(w.ns)
	if err != nil {
		return err
	}
	w.lookout = &lookout{where: "on the host", capture: c, harmless: harmless}
	w.inside = map[*harness.Daemon]*watcher{}
	return nil
}

// watchInside begins to look at all packets in the sandboxes of a daemon that is not
// started yet.
func (w *world) watchInside(d *harness.Daemon) { w.inside[d] = watchInside(d) }

// unexpected says what was seen since the last call and should not have been, on the host
// and in sandboxes.
func (w *world) unexpected() []string {
	list := w.lookout.unexpected()
	for _, i := range w.inside {
		list = append(list, i.unexpected()...)
	}
	return list
}

// settle fails t for it.
func (w *world) settle(t testing.TB) {
	t.Helper()
	for _, text := range w.unexpected() {
		t.Error(text)
	}
}

// leave ends to look into the sandboxes of a daemon that has ended.
func (w *world) leave(t testing.TB, d *harness.Daemon) {
	t.Helper()
	w.settle(t)
	if err := w.inside[d].close(); err != nil {
		t.Error(err)
	}
	delete(w.inside, d)
}

// unwatch ends with what was not said yet. The daemons have ended.
func (w *world) unwatch() error {
	var errs []error
	for _, text := range w.unexpected() {
		errs = append(errs, errors.New(text))
	}
	for _, i := range w.inside {
		errs = append(errs, i.close())
	}
	return errors.Join(append(errs, w.lookout.capture.close())...)
}

// serve opens the servers.
func (w *world) serve() error {
	packet, err := w.listenPacket(resolver + ":53")
	if err != nil {
		return err
	}
	go w.dns.serve(packet)
	stream, err := w.listen(resolver + ":53")
	if err != nil {
		return err
	}
	go w.dns.serveTCP(stream)
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	for _, addr := range append([]string{public, elsewhere, private, mirror, metadata, publicV6, "127.0.0.1"}, metadataServices...) {
		if err := w.serveAt(addr, cert); err != nil {
			return err
		}
	}
	overTLS, err := w.listen(public + ":853")
	if err != nil {
		return err
	}
	go greetTLS(overTLS, cert, public)
	return nil
}

// serveAt opens those that are at each address.
func (w *world) serveAt(addr string, cert tls.Certificate) error {
	web, err := w.listen(net.JoinHostPort(addr, "80"))
	if err != nil {
		return err
	}
	go http.Serve(web, greeter(addr)) //nolint:errcheck // it ends with its listener
	safe, err := w.listen(net.JoinHostPort(addr, "443"))
	if err != nil {
		return err
	}
	go greetTLS(safe, cert, addr)
	echo, err := w.listen(net.JoinHostPort(addr, "5432"))
	if err != nil {
		return err
	}
	go echoAll(echo)
	return nil
}

// greeter answers with where it is and what it was called.
func greeter(addr string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "I am %s, you asked for %s", addr, r.Host)
	})
}

func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

func (w *world) keep(c io.Closer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, c)
}

func (w *world) listen(addr string) (l net.Listener, err error) {
	err = w.ns.Do(func() error {
		l, err = net.Listen("tcp", addr)
		return err
	})
	if err == nil {
		w.keep(l)
	}
	return l, err
}

func (w *world) listenPacket(addr string) (p net.PacketConn, err error) {
	err = w.ns.Do(func() error {
		p, err = net.ListenPacket("udp4", addr)
		return err
	})
	if err == nil {
		w.keep(p)
	}
	return p, err
}

// try runs the client in the world, unconfined.
func (w *world) try(client string, args ...string) string {
	line := append(append(w.enter(), client, "-source", w.source), args...)
	out, _ := exec.Command(line[0], line[1:]...).CombinedOutput() // the client says how it went
	return strings.TrimSpace(string(out))
}

func (w *world) close() error {
	var errs []error
	if w.lookout != nil {
		errs = append(errs, w.unwatch())
	}
	for _, c := range w.open {
		errs = append(errs, c.Close())
	}
	if w.ns != nil {
		errs = append(errs, w.ns.Close())
	}
	return errors.Join(append(errs, netns.Remove(w.path()), os.RemoveAll(w.dir))...)
}
