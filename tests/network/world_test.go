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
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// world is a network namespace, with servers in it. One in which a daemon lives stands
// for the host's.
type world struct {
	dir     string
	ns      *netns.Namespace
	source  string                       // of who runs in it unconfined, as the client wants it
	far     *world                       // to which a host has its only way
	up      int                          // the device that leads there
	lookout *lookout                     // nil where nobody looks
	inside  map[*harness.Daemon]*watcher // those of the daemons in it
	dns     *zone                        // of a host
	mu      sync.Mutex
	open    []io.Closer
}

// newWorld makes one that is empty. Who runs in it unconfined comes from sources.
func newWorld(sources ...string) (*world, error) {
	dir, err := os.MkdirTemp("/var/tmp", "caisson-world-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, source: strings.Join(sources, ",")}
	err = netns.Create(w.path())
	if err == nil {
		w.ns, err = netns.Open(w.path())
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) path() string { return filepath.Join(w.dir, "netns") }

// enter is what is put before a command line that is to run in the world.
func (w *world) enter() []string { return []string{"nsenter", "--net=" + w.path(), "--"} }

// command runs a command of the operator in w.
func (w *world) command(text string) (string, error) {
	line := append(w.enter(), strings.Fields(text)...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w\n%s", line, err, out)
	}
	return string(out), nil
}

// run fails t unless the command succeeds.
func (w *world) run(t *testing.T, command string) string {
	t.Helper()
	out, err := w.command(command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// device is the index of a network device of w.
func (w *world) device(name string) (index int, err error) {
	err = w.ns.Do(func() error {
		device, err := net.InterfaceByName(name)
		if err == nil {
			index = device.Index
		}
		return err
	})
	return index, err
}

// watch begins to look at all packets of a host, until it is closed.
func (w *world) watch() error {
	c, err := newCapture(w.ns)
	if err != nil {
		return err
	}
	w.lookout = &lookout{where: "on the host", capture: c, harmless: w.harmless}
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

// serveAt opens HTTP on port 80, TLS on 443, and an echo on 5432, at an address or all.
func (w *world) serveAt(addr string, cert tls.Certificate) error {
	web, err := w.listen(net.JoinHostPort(addr, "80"))
	if err != nil {
		return err
	}
	go http.Serve(web, greeter()) // it ends with its listener
	safe, err := w.listen(net.JoinHostPort(addr, "443"))
	if err != nil {
		return err
	}
	go greetTLS(safe, cert)
	echo, err := w.listen(net.JoinHostPort(addr, "5432"))
	if err != nil {
		return err
	}
	go echoAll(echo)
	return nil
}

// greeter answers with where it is and what it was called.
func greeter() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		own := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintf(rw, "I am %s, you asked for %s", own.(*net.TCPAddr).IP, r.Host)
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

// listenSoon listens as soon as the address is free.
func (w *world) listenSoon(addr string) (l net.Listener, err error) {
	for range 100 {
		if err = w.ns.Do(func() error { l, err = net.Listen("tcp4", addr); return err }); err == nil {
			return l, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, err
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
	out, _ := w.client(client, args...).CombinedOutput() // the client says how it went
	return strings.TrimSpace(string(out))
}

func (w *world) client(client string, args ...string) *exec.Cmd {
	line := append(append(w.enter(), client, "-source", w.source), args...)
	return exec.Command(line[0], line[1:]...)
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
	if w.far != nil {
		errs = append(errs, w.far.close())
	}
	return errors.Join(append(errs, netns.Remove(w.path()), os.RemoveAll(w.dir))...)
}
