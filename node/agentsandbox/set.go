package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

const (
	// mostRequests is how many requests of one pod are answered at once, and mostConnections how
	// many connections one port has.
	mostRequests    = 256
	mostConnections = 256
	// leave is how long commands have to end with the program.
	leave = 3 * time.Second
)

// Set answers for sandboxes. It keeps nothing: after a restart of the program, Follow is called for
// all of them again.
type Set struct {
	caisson Caisson
	output  *budget
	mu      sync.Mutex
	served  map[string]*served // by sandbox
}

// New returns a Set that answers for no sandbox.
func New(caisson Caisson) *Set {
	return &Set{caisson: caisson, output: newBudget(), served: map[string]*served{}}
}

// served is a sandbox that is answered for.
type served struct {
	owner   string
	servers []*http.Server
	doors   map[uint16]*door
	guards  map[uint16]*guarded
	slots   chan struct{} // requests
}

// Follow answers for these sandboxes of an owner, and for no others of it. Who may connect to those
// that it answers for already is changed.
func (s *Set) Follow(owner string, boxes []Sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]bool{}
	for _, b := range boxes {
		wanted[b.ID] = true
	}
	for id, v := range s.served {
		if v.owner == owner && !wanted[id] {
			v.close()
			delete(s.served, id)
		}
	}
	var errs []error
	for _, b := range boxes {
		if v := s.served[b.ID]; v != nil {
			v.admit(b.Admits)
			continue
		}
		v, err := s.serve(owner, b)
		if err != nil {
			errs = append(errs, fmt.Errorf("runtime %s: %w", b.Runtime, err))
			continue
		}
		s.served[b.ID] = v
	}
	return errors.Join(errs...)
}

// Dial connects to a port of a sandbox's runtime. ok says whether the runtime has such a port.
func (s *Set) Dial(sandbox string, port uint16) (c Conn, ok bool, err error) {
	s.mu.Lock()
	var d *door
	if v := s.served[sandbox]; v != nil {
		d = v.doors[port]
	}
	s.mu.Unlock()
	if d == nil {
		return nil, false, nil
	}
	c, err = d.dial()
	return c, true, err
}

// Close ends all, with the commands whose clients are connected.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.served {
		v.close()
	}
	late := time.After(leave)
	for id, v := range s.served {
		delete(s.served, id)
		for range mostRequests { // each answer that is under way has one
			select {
			case v.slots <- struct{}{}:
			case <-late:
				return
			}
		}
	}
}

func (s *Set) serve(owner string, b Sandbox) (*served, error) {
	r := &runtime{Sandbox: b, caisson: s.caisson, output: s.output}
	v := &served{owner: owner, doors: map[uint16]*door{}, guards: map[uint16]*guarded{}, slots: make(chan struct{}, mostRequests)}
	for _, kind := range services[b.Runtime] {
		if err := v.listen(r, kind); err != nil {
			v.close()
			return nil, err
		}
	}
	return v, nil
}

// The bounds of time for clients, beside those of bodies.
const (
	headerTime = 10 * time.Second
	idleTime   = time.Minute
	pingTime   = 30 * time.Second // of silence, after which an HTTP/2 client is asked whether it is there
)

func (v *served) listen(r *runtime, kind service) error {
	server := &http.Server{
		Handler: v.bound(kind.handler(r)), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		ErrorLog:  log.New(io.Discard, "", 0), // what clients do wrong is for them to know
		Protocols: &http.Protocols{},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: mostRequests, SendPingTimeout: pingTime, PingTimeout: pingTime / 2, WriteByteTimeout: stall},
	}
	server.Protocols.SetHTTP1(!kind.http2)
	server.Protocols.SetUnencryptedHTTP2(kind.http2)
	listeners := []net.Listener{newDoor()}
	v.doors[kind.port] = listeners[0].(*door)
	v.servers = append(v.servers, server)
	if r.Address != "" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(r.Address, strconv.Itoa(int(kind.port))))
		if err != nil {
			return err
		}
		g := guard(l.(*net.TCPListener))
		v.guards[kind.port] = g
		listeners = append(listeners, g)
	}
	v.admit(r.Admits)
	slots := make(chan struct{}, mostConnections)
	for _, l := range listeners {
		go func() { _ = server.Serve(limited{l, slots}) }() // it ends by close
	}
	return nil
}

// admit says who may connect at the pod's address.
func (v *served) admit(admits func(uint16, netip.Addr) bool) {
	for port, g := range v.guards {
		g.admit(func(client netip.Addr) bool { return admits != nil && admits(port, client) })
	}
}

// bound refuses requests of other sites' pages and those beyond mostRequests.
func (v *served) bound(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case v.slots <- struct{}{}:
		default:
			refuseAs(w, unavailable, fmt.Sprintf("there are %d requests at once already: try again", mostRequests))
			return
		}
		defer func() { <-v.slots }()
		next.ServeHTTP(w, r)
	})
}

func (v *served) close() {
	for _, s := range v.servers {
		_ = s.Close() // what it listens to, and connections that nobody waits for
	}
	for _, d := range v.doors {
		d.close()
	}
}
