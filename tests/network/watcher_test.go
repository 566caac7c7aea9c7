package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/tests/harness"
)

// watcher looks at all packets in each sandbox of a daemon, from the first one on until
// it is gone.
type watcher struct {
	daemon *harness.Daemon
	stop   chan struct{}

	mu     sync.Mutex
	began  map[string]bool     // by the file to which a namespace is bound
	inside map[string]*lookout // of those that are there
	faults []string
}

// watchInside begins with a daemon that is not started yet.
func watchInside(d *harness.Daemon) *watcher {
	w := &watcher{daemon: d, stop: make(chan struct{}), began: map[string]bool{}, inside: map[string]*lookout{}}
	go w.follow()
	return w
}

// follow looks for new namespaces, which nothing announces.
func (w *watcher) follow() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.look()
		}
	}
}

func (w *watcher) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	files, _ := filepath.Glob(sandbox{of: w.daemon, id: "*"}.netns()) // it is well-formed
	for _, file := range files {
		if w.inside[file] != nil {
			continue
		}
		ns, err := netns.Open(file)
		if err != nil { // it is not bound yet
			continue
		}
		l, err := lookInto(file, ns)
		if err != nil {
			w.faults = append(w.faults, fmt.Sprintf("%s: %v", file, err))
		}
		if l != nil {
			w.inside[file], w.began[file] = l, true
		}
	}
}

// lookInto begins before the first packet: that it is too late is an error beside the
// lookout.
func lookInto(file string, ns *netns.Namespace) (*lookout, error) {
	defer ns.Close()
	c, err := newCapture(ns)
	if err != nil {
		return nil, err
	}
	return &lookout{where: "in " + file, capture: c, harmless: staysInside}, ns.Do(carriedNothing)
}

// carriedNothing is an error unless no device of the calling thread's namespace has had
// a packet (proc_pid_net(5)).
func carriedNothing() error {
	data, err := os.ReadFile("/proc/thread-self/net/dev")
	for line := range strings.Lines(string(data)) {
		name, counters, isDevice := strings.Cut(line, ":")
		if f := strings.Fields(counters); isDevice && (f[1] != "0" || f[9] != "0") { // received, sent
			err = errors.Join(err, fmt.Errorf("%s had packets before somebody looked: %s", strings.TrimSpace(name), counters))
		}
	}
	return err
}

// staysInside reports whether a packet in a sandbox's namespace is for the gateway there,
// or for the sandbox itself: a reset by its own rules has the address of who was not reached.
func staysInside(p packet) bool {
	pool := netip.MustParsePrefix("198.18.0.0/15")
	to := p.to.Addr()
	own := p.device == loIndex && (p.from.Addr() == to || strings.HasPrefix(p.what, kindSegment))
	return to.IsLoopback() || own || pool.Contains(to) && strings.HasPrefix(p.what, kindBegin)
}

// unexpected says what was seen since the last call and should not have been. Sandboxes
// that are gone are let go of.
func (w *watcher) unexpected() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.faults
	w.faults = nil
	for file, l := range w.inside {
		_, gone := os.Stat(file)
		list = append(list, l.unexpected()...)
		if gone == nil {
			continue
		}
		delete(w.inside, file)
		if err := l.capture.close(); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}

// of is the lookout in a sandbox that has been created.
func (w *watcher) of(t testing.TB, s sandbox) *lookout {
	t.Helper()
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside[s.netns()] == nil {
		t.Fatalf("nobody looks into sandbox %s", s.id)
	}
	return w.inside[s.netns()]
}

// close ends to look for sandboxes. The daemon has ended: those that there were are gone,
// and its log names those in which something ran.
func (w *watcher) close() (err error) {
	close(w.stop)
	w.mu.Lock()
	defer w.mu.Unlock()
	for file := range w.inside {
		err = errors.Join(err, fmt.Errorf("%s outlives its daemon", file))
	}
	for line := range strings.Lines(w.daemon.Log()) {
		_, fields, ended := strings.Cut(line, `msg="command ended" sandbox=`)
		id, _, _ := strings.Cut(fields, " ")
		if ended && !w.began[sandbox{id, w.daemon}.netns()] {
			err = errors.Join(err, fmt.Errorf("nobody looked into sandbox %s", id))
		}
	}
	return err
}
