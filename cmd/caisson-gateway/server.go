package main

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/secret"
	"github.com/caisson-run/caisson/gateway/upstream"
)

// server does what the daemon asks, one request after the other.
type server struct {
	in        *control.Receiver
	out       *outbox
	local     policy.Local
	share     func() dns.Resolver // makes that of one sandbox; nil: not configured yet
	proxy     *upstream.Proxy     // nil: there is none
	sandboxes map[string]*sandbox
	watched   map[string]*watched
	secrets   *secret.Store         // nil: memory for it could not be locked
	noSecrets error                 // why
	roots     func() *x509.CertPool // that this host trusts
	ledger    budget.Ledger
	telling   atomic.Bool // tellSoon waits

	mu        sync.Mutex // connections of linked sandboxes look at these
	published map[string]*published
}

func newServer(conn *net.UnixConn, local policy.Local, secrets *secret.Store, noSecrets error, roots func() *x509.CertPool) *server {
	return &server{
		in: control.NewReceiver(conn), out: newOutbox(conn), local: local, secrets: secrets, noSecrets: noSecrets, roots: roots,
		sandboxes: map[string]*sandbox{}, watched: map[string]*watched{}, published: map[string]*published{},
	}
}

// serve returns nil when the daemon is gone.
func (s *server) serve() error {
	failed := make(chan error, 2)
	go func() { failed <- s.out.write() }()
	go func() { failed <- s.read() }()
	s.out.push(control.Report{Confined: true})
	if err := <-failed; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (s *server) read() error {
	for {
		q, files, err := s.in.Next()
		switch {
		case err == nil:
			err = s.do(q, files)
		case !errors.Is(err, control.ErrDescriptors): // which is no reason to end the traffic of all sandboxes
			return err
		}
		if q.Op != control.Supply { // which takes them over
			err = errors.Join(err, closeFiles(files))
		}
		if q.Op == control.Settle {
			s.settle(q)
			continue
		}
		s.out.push(control.Report{Answer: control.Answered(q.Seq, err)})
	}
}

func closeFiles(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (s *server) do(q control.Request, files []*os.File) error {
	switch q.Op {
	case control.Configure:
		return s.configure(q.Servers, q.Proxy)
	case control.Add:
		return s.add(q, files)
	case control.Watch:
		return s.watch(q.Sandbox, files[0])
	case control.SetPolicy:
		return s.setPolicy(q.Sandbox, q.Policy)
	case control.SetBill:
		return s.setBill(q)
	case control.Publish:
		return s.publish(q, files)
	case control.Admit:
		return s.admit(q.Sandbox, q.Clients)
	case control.Supply:
		return s.supply(q.Sandbox, files)
	case control.Secrets:
		return s.setSecrets(q, files)
	case control.TrySecret:
		return s.trySecret(q.Secrets[0], files[0])
	case control.Remove:
		s.remove(q.Sandbox)
	case control.Ping, control.Settle:
		s.tellOpen()
		s.tellSpent()
	}
	return nil
}

// setSecrets has the values that were sent, and no others.
func (s *server) setSecrets(q control.Request, files []*os.File) error {
	if s.secrets == nil {
		if len(q.Secrets)+len(q.Kept) > 0 {
			return s.noSecrets
		}
		return nil
	}
	values := map[string]io.Reader{}
	for i, name := range q.Secrets {
		values[name] = files[i]
	}
	return s.secrets.Set(values, q.Kept...)
}

// trySecret says what is wrong with a value.
func (s *server) trySecret(name string, value io.Reader) error {
	if s.secrets == nil {
		return s.noSecrets
	}
	return s.secrets.Try(name, value)
}

// configure is done once: sandboxes share what was resolved. One that fails leaves no
// resolver, without which no sandbox is served.
func (s *server) configure(servers []netip.AddrPort, proxy *control.Proxy) (err error) {
	if s.share != nil {
		return sbxerr.New(sbxerr.Internal, "gateway.configure", "the resolvers are set already")
	}
	if s.proxy, err = proxy.Compile(); err != nil {
		return err
	}
	up, err := dns.NewUpstream(servers)
	if err != nil {
		s.share = func() dns.Resolver { return unresolved{err} } // mapped names need none
		return nil
	}
	s.share = func() dns.Resolver { return up.Share() }
	return nil
}

// unresolved is a resolver where there is none.
type unresolved struct{ err error }

func (u unresolved) Resolve(context.Context, policy.Name) (policy.Resolution, error) {
	return policy.Resolution{}, u.err
}

func (s *server) add(q control.Request, files []*os.File) error {
	const op = "gateway.add"
	if s.share == nil || s.sandboxes[q.Sandbox] != nil || s.watched[q.Sandbox] != nil {
		return sbxerr.New(sbxerr.Internal, op, "the sandbox %s is here already, or no resolver is set", q.Sandbox)
	}
	b, err := s.newSandbox(q)
	if err != nil {
		return err
	}
	if err := b.start(files); err != nil {
		return sbxerr.Wrap(sbxerr.Gateway, op, err)
	}
	s.sandboxes[q.Sandbox] = b
	return nil
}

func (s *server) setPolicy(id string, spec policy.Spec) error {
	b := s.sandboxes[id]
	if b == nil {
		return sbxerr.New(sbxerr.NotFound, "gateway.policy", "there is no sandbox %s", id)
	}
	p, err := policy.Compile(spec)
	if err != nil {
		return err
	}
	b.resolver.choose(spec.Resolvers)
	b.proxy.SetPolicy(p)
	return nil
}

// setBill has the requests of a sandbox counted elsewhere from now on.
func (s *server) setBill(q control.Request) error {
	b := s.sandboxes[q.Sandbox]
	if b == nil {
		return sbxerr.New(sbxerr.NotFound, "gateway.bill", "there is no sandbox %s", q.Sandbox)
	}
	s.ledger.Restore(q.Spent)
	b.bill.Store(&q.Bill)
	return nil
}

func (s *server) remove(id string) {
	s.shut(id)
	if b := s.sandboxes[id]; b != nil {
		b.end()
		delete(s.sandboxes, id)
		s.tellSpent()
		s.keepAccounts()
	}
	if w := s.watched[id]; w != nil {
		w.end()
		delete(s.watched, id)
	}
	s.out.forget(id)
}

// How long an answer may wait for what was tried before the question: about one sandbox,
// of which all may have to be known, and about all.
const (
	settleOne = 500 * time.Millisecond
	settleAll = 20 * time.Millisecond
)

// settle answers q when what the rules of namespaces told is recorded, or the time has come.
// Other requests do not wait for that.
func (s *server) settle(q control.Request) {
	all, latest := s.recording(q.Sandbox), time.Now().Add(settleOne)
	if q.Sandbox == "" {
		latest = time.Now().Add(settleAll)
	}
	go func() {
		var err error
		for _, r := range all {
			if !r.settle(latest) && q.Sandbox != "" {
				err = sbxerr.New(sbxerr.EgressBusy, "gateway.settle", "there was more to record than could be in %v", settleOne)
			}
		}
		s.out.push(control.Report{Answer: control.Answered(q.Seq, err)})
	}()
}

// recorder is a sandbox of which something may be told that has no record yet.
type recorder interface{ settle(latest time.Time) bool }

// recording is a sandbox, or all of them.
func (s *server) recording(id string) (all []recorder) {
	for of, b := range s.sandboxes {
		if id == "" || id == of {
			all = append(all, b)
		}
	}
	for of, w := range s.watched {
		if id == "" || id == of {
			all = append(all, w)
		}
	}
	return all
}

// tellOpen reports each number of connections that changed.
func (s *server) tellOpen() {
	for id, b := range s.sandboxes {
		if n := b.proxy.Connections(); n != b.told {
			b.told = n
			s.out.push(control.Report{Open: &control.Open{Sandbox: id, Connections: n}})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.published {
		p.tellOpen()
	}
}

// tellSpent reports what requests by routes cost, as far as it changed.
func (s *server) tellSpent() {
	for {
		list := s.ledger.Changed(control.MaxSpent)
		if len(list) == 0 {
			return
		}
		s.out.push(control.Report{Spent: list})
	}
}

// tellDelay is how long what a request cost may wait for that of others.
const tellDelay = 50 * time.Millisecond

// tellSoon is tellSpent for many requests at once.
func (s *server) tellSoon() {
	if s.telling.CompareAndSwap(false, true) {
		time.AfterFunc(tellDelay, func() {
			s.telling.Store(false)
			s.tellSpent()
		})
	}
}

// keepAccounts drops those of sandboxes that are gone.
func (s *server) keepAccounts() {
	var bills []budget.Bill
	for _, b := range s.sandboxes {
		bills = append(bills, *b.bill.Load())
	}
	s.ledger.Keep(bills, time.Now())
}
