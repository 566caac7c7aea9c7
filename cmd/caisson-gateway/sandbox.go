package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/droplog"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/usage"
)

// sandbox is what is served for one sandbox.
type sandbox struct {
	id    string
	proxy *proxy.Proxy // holds the policy, also for names
	names dns.Config
	rules droplog.Gate
	log   *droplog.Log // of packets that go past both
	spare ratelog.Log[lookup.Query]
	out   *outbox

	routes *routes
	bill   atomic.Pointer[budget.Bill]
	told   int // connections, when it was last said

	stop   context.CancelFunc
	served sync.WaitGroup

	resolver *resolver // one for questions and connections: both count

	mu    sync.Mutex
	known map[policy.Name]bool // names that the daemon knows of
}

func (s *server) newSandbox(q control.Request) (*sandbox, error) {
	p, err := policy.Compile(q.Policy)
	if err != nil {
		return nil, err
	}
	pool, err := lookup.NewPool(control.MaxNames, q.Names)
	if err != nil {
		return nil, err
	}
	b := &sandbox{id: q.Sandbox, out: s.out, known: map[policy.Name]bool{}, resolver: &resolver{common: s.share()}}
	b.resolver.choose(q.Policy.Resolvers)
	for name := range q.Names {
		b.known[name] = true
	}
	s.ledger.Restore(q.Spent)
	b.bill.Store(&q.Bill)
	b.routes = &routes{sandbox: b, secrets: s.secrets, roots: s.roots, ledger: &s.ledger, spent: s.tellSoon}
	b.proxy, err = proxy.New(proxy.Config{
		Routes:  b.routes,
		Sandbox: b.id, Names: pool, Resolver: b.resolver, Local: s.local, Recorder: b, Requests: func(u usage.Use) { b.out.event(b.id, control.Report{Use: &u}) }, Upstream: s.proxy, Link: s.link, Limits: proxy.DefaultLimits,
	}, p)
	if err != nil {
		return nil, err
	}
	b.names = dns.Config{Sandbox: b.id, Policy: b.proxy.Policy, Pool: pool, Resolver: b.resolver, Elsewhere: s.proxy.Resolves, Observer: b, Limits: dns.DefaultLimits}
	b.spare.Record = func(q lookup.Query, skipped uint64) {
		q.Skipped = skipped
		b.out.event(b.id, control.Report{Query: &q})
	}
	b.rules = droplog.Gate{Policy: b.proxy.Policy, Names: pool}
	return b, nil
}

// start serves on copies of files until end.
func (b *sandbox) start(files []*os.File) error {
	tcp, packets, stream, err := listeners(files)
	if err != nil {
		return err
	}
	b.log, err = droplog.New(droplog.Config{Sandbox: b.id, Rules: b.rules, Recorder: b}, files[3])
	if err != nil {
		closeAll(tcp, packets, stream)
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.served.Go(func() { b.report(b.proxy.Serve(ctx, tcp)) })
	b.served.Go(func() { b.report(dns.Serve(ctx, b.names, packets, stream)) })
	b.served.Go(func() { b.report(b.log.Serve()) })
	return nil
}

// listeners are the first sockets of control.Add, whose order is fixed.
func listeners(files []*os.File) (tcp *net.TCPListener, packets net.PacketConn, stream net.Listener, err error) {
	first, err1 := net.FileListener(files[0])
	packets, err2 := net.FilePacketConn(files[1])
	stream, err3 := net.FileListener(files[2])
	tcp, ok := first.(*net.TCPListener)
	if err = errors.Join(err1, err2, err3); err == nil && !ok {
		err = fmt.Errorf("the first socket is a %T, not a TCP listener", first)
	}
	if err != nil {
		closeAll(first, packets, stream)
	}
	return tcp, packets, stream, err
}

// closeAll closes what was opened. Each may be an interface that holds nothing.
func closeAll(first net.Listener, packets net.PacketConn, stream net.Listener) {
	if first != nil {
		_ = first.Close()
	}
	if packets != nil {
		_ = packets.Close()
	}
	if stream != nil {
		_ = stream.Close()
	}
}

// report says that the sandbox is not served any more, unless that was asked for.
func (b *sandbox) report(err error) {
	if err != nil {
		b.stop() // neither without the other
		b.out.push(control.Report{Broken: &control.Broken{Sandbox: b.id, Reason: err.Error()}})
	}
}

// end cuts all connections and returns when they are over.
func (b *sandbox) end() {
	b.stop()
	b.log.End()
	b.served.Wait()
	b.routes.end()
	b.spare.Flush()
}

// Record passes on what became of a connection.
func (b *sandbox) Record(a attempt.Attempt) { b.out.event(b.id, control.Report{Attempt: &a}) }

// Queried passes on what became of a question, and before it a name that has
// its address now: the next gateway must know it.
func (b *sandbox) Queried(q lookup.Query) {
	if q.Verdict == lookup.Answered && b.learn(policy.Name(q.Name)) {
		b.out.push(control.Report{Named: &control.Named{Sandbox: b.id, Name: policy.Name(q.Name), Address: q.Address}})
	}
	b.spare.Add(q)
}

// Surplus has a question counted.
func (b *sandbox) Surplus(q lookup.Query) { b.spare.Suppress(q) }

// settle passes on all that waits; it is false when it is too late for some of it.
func (b *sandbox) settle(latest time.Time) bool {
	b.spare.Flush()
	b.proxy.Flush()
	return b.log.Settle(latest)
}

// learn reports whether name is new.
func (b *sandbox) learn(name policy.Name) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.known[name]
	b.known[name] = true
	return !known
}
