package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/gateway/usage"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// DefaultID is the user and the group that the gateway runs as where no other
// is named: right below the ids that sandboxes get by default, and of nobody in
// /etc/passwd. It must not be in the range of a daemon's sandboxes.
const DefaultID = 1879048191

// Options are what a Gateway needs to know.
type Options struct {
	Program  string           // path of caisson-gateway
	UID, GID uint32           // 0 is DefaultID: it never runs as root
	Servers  []netip.AddrPort // resolvers to ask; none: the host's own, read at each start
	Upstream *upstream.Proxy  // the proxy through which to leave; nil: none
	Log      *slog.Logger     // nil drops
	Observer Observer         // nil: nobody looks
	Accounts Accounts         // nil: a later process begins at nothing
}

// Sandbox is one that may send something out.
type Sandbox struct {
	ID     string
	Policy policy.Spec
	Names  map[policy.Name]netip.Addr // given before a restart of the daemon; see Observer.Named
	Before traffic.Counts             // what it did before one
	Bill   budget.Bill                // which accounts its requests by routes are counted in
}

// Accounts keeps what requests by routes cost while no process does. It must not block.
type Accounts interface {
	// Of returns what the accounts of a bill come to.
	Of(budget.Bill) []budget.Entry
	// Spent takes accounts that changed.
	Spent([]budget.Entry)
}

// Observer is told what sandboxes do, one thing after the other. It must not
// block: all sandboxes' records wait meanwhile.
type Observer interface {
	Attempted(attempt.Attempt)
	Queried(lookup.Query)
	Arrived(attempt.Arrival)
	Used(usage.Use)
	// Named says that a sandbox has an address for a name, which it keeps. Who
	// adds the sandbox again after a restart of the daemon, gives it back.
	Named(sandbox string, name policy.Name, addr netip.Addr)
}

// timing are the deadlines, apart so that tests need not wait for them.
type timing struct {
	ping                   time.Duration // between two questions that cost nothing
	patience               time.Duration // for an answer; then the process is replaced
	start                  time.Duration // until it is confined
	minBackoff, maxBackoff time.Duration
	stable                 time.Duration // a life this long starts the backoff anew
}

var usual = timing{
	ping: 2 * time.Second, patience: 10 * time.Second, start: 10 * time.Second,
	minBackoff: 50 * time.Millisecond, maxBackoff: 5 * time.Second, stable: 30 * time.Second,
}

// Gateway is the process and what it serves.
type Gateway struct {
	options Options
	timing  timing

	op   chan struct{} // held by what changes sandboxes or secrets, or hands them over
	stop chan struct{} // closed by Close

	secrets map[string]Source // read and changed by who holds op

	mu        sync.Mutex
	sandboxes map[string]*entry
	uses      map[string]SecretUse
	link      *link         // to the process that serves; nil while there is none
	failure   error         // why the last start failed
	changed   chan struct{} // closed when one of the two is another
	running   chan struct{} // closed when the supervisor ends; nil if there is none
	status    Status
	closed    bool
}

// entry is a sandbox and what the daemon keeps for it.
type entry struct {
	policy    policy.Spec // read and changed by who holds Gateway.op
	names     map[policy.Name]netip.Addr
	taken     map[netip.Addr]bool // the values of names
	files     []*os.File          // in the order of op; nil: nothing gets out
	op        control.Op          // by which a process gets files: Add, or Watch, of which nothing goes through it
	bill      budget.Bill         // read and changed by who holds Gateway.op
	counters  Counters
	broken    error      // why the process that serves does not serve this one; nil: it does
	published *published // nil: nothing gets in
}

// Status says how the process does.
type Status struct {
	PID    int // 0 while none serves
	Starts int // of processes that came to serve
}

// New makes a Gateway. The process starts with the first Add.
func New(o Options) *Gateway {
	if o.UID == 0 {
		o.UID = DefaultID
	}
	if o.GID == 0 {
		o.GID = DefaultID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Gateway{
		options: o, timing: usual, op: make(chan struct{}, 1), stop: make(chan struct{}), sandboxes: map[string]*entry{}, uses: map[string]SecretUse{}, changed: make(chan struct{}),
	}
}

// Add lets s send out what its policy allows, by sockets in its network
// namespace. It takes them over: they are kept for later processes, and
// closed by Remove or with an error. An ID that is there already is refused
// with code sbxerr.Exists.
func (g *Gateway) Add(ctx context.Context, s Sandbox, by netns.Sockets) error {
	const op = "egress.add"
	e := &entry{
		policy: s.Policy, names: maps.Clone(s.Names), taken: map[netip.Addr]bool{}, counters: Counters{Counts: s.Before}, bill: s.Bill,
		files: []*os.File{by.TCP, by.DNSPacket, by.DNSStream, by.DropLog}, op: control.Add,
	}
	if err := e.check(); err != nil {
		return errors.Join(err, e.close())
	}
	return g.admit(ctx, op, s.ID, e)
}

// Watch records the refused packets of a sandbox of the mode bridge, whose traffic does not
// go through the gateway. The drop log is taken over, as the sockets of Add are. before is
// what the sandbox did before a restart of the daemon.
func (g *Gateway) Watch(ctx context.Context, id string, before traffic.Counts, log *os.File) error {
	return g.admit(ctx, "egress.watch", id, &entry{counters: Counters{Counts: before}, files: []*os.File{log}, op: control.Watch})
}

// admit has the gateway serve e, which is closed with an error.
func (g *Gateway) admit(ctx context.Context, op, id string, e *entry) error {
	q := g.request(id, e) // before reports can change e
	err := g.with(ctx, op, func(l *link) error {
		if err := g.put(id, e); err != nil {
			return err
		}
		err := l.ask(q, e.files...)
		if err != nil {
			g.take(id)
		}
		return err
	})
	if err != nil {
		return errors.Join(err, e.close())
	}
	return nil
}

// SetPolicy puts another policy in force. When it returns, connections that it
// does not allow are cut. With an error the old one is in force: also if ctx
// ended, which is looked at only before the gateway was asked.
func (g *Gateway) SetPolicy(ctx context.Context, id string, spec policy.Spec) error {
	const op = "egress.policy"
	if err := checkPolicy(spec); err != nil {
		return err
	}
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	e := g.get(id)
	if e == nil {
		return sbxerr.New(sbxerr.NotFound, op, "sandbox %s is not served", id)
	}
	if l := g.current(); l != nil {
		err := l.ask(control.Request{Op: control.SetPolicy, Sandbox: id, Policy: spec})
		if err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	e.policy = spec // without a process nothing gets out; the next one begins with this
	return nil
}

// SetBill has the requests of a sandbox by routes counted in other accounts. One that is not
// served has none.
func (g *Gateway) SetBill(ctx context.Context, id string, b budget.Bill) error {
	const op = "egress.bill"
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	e := g.get(id)
	if e == nil || e.op != control.Add {
		return nil
	}
	if l := g.current(); l != nil {
		err := l.ask(control.Request{Op: control.SetBill, Sandbox: id, Bill: b, Spent: g.spentBefore(b)})
		if err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	e.bill = b
	return nil
}

// Remove ends all of a sandbox's connections, out and in, and closes its sockets. Absent is
// success. It does not need a process that works: one that does not do it is
// replaced by one that never knew the sandbox.
func (g *Gateway) Remove(ctx context.Context, id string) error {
	const op = "egress.remove"
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	return sbxerr.Wrap(sbxerr.Gateway, op, g.remove(id))
}

// remove is Remove for who holds g.op.
func (g *Gateway) remove(id string) error {
	e := g.get(id)
	if e == nil {
		return nil
	}
	if l := g.current(); l != nil {
		if err := l.ask(control.Request{Op: control.Remove, Sandbox: id}); err != nil {
			l.kill()
			<-l.gone
		}
	}
	g.take(id)
	return e.close()
}

// Status returns how the process does.
func (g *Gateway) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// Close removes all sandboxes, so that the records of their connections are
// complete, and ends the process. The Gateway cannot be used again.
func (g *Gateway) Close() error {
	g.op <- struct{}{}
	defer g.release()
	var errs []error
	for id := range g.all() {
		errs = append(errs, g.remove(id))
	}
	if running := g.shut(); running != nil {
		<-running
	}
	return sbxerr.Wrap(sbxerr.Gateway, "egress.close", errors.Join(errs...))
}

// shut refuses all that comes, and returns what is closed when the supervisor
// ended, or nil if there is none.
func (g *Gateway) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.stop)
		g.announce()
	}
	return g.running
}

// check refuses what no gateway would take, and fills in taken.
func (e *entry) check() error {
	for _, addr := range e.names {
		e.taken[addr] = true
	}
	if e.names == nil {
		e.names = map[policy.Name]netip.Addr{}
	}
	if _, err := lookup.NewPool(control.MaxNames, e.names); err != nil {
		return err
	}
	return checkPolicy(e.policy)
}

// checkPolicy refuses what is no policy, or too large for a message.
func checkPolicy(s policy.Spec) error {
	if _, err := policy.Compile(s); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err == nil && len(b) > control.MaxPolicy {
		err = fmt.Errorf("the policy has %d bytes, more than %d", len(b), control.MaxPolicy)
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "egress.policy", err, "use wildcards or prefixes in place of many rules")
}

func (g *Gateway) request(id string, e *entry) control.Request {
	return control.Request{Op: e.op, Sandbox: id, Policy: e.policy, Names: maps.Clone(e.names), Bill: e.bill, Spent: g.spentBefore(e.bill)}
}

func (g *Gateway) spentBefore(b budget.Bill) []budget.Entry {
	if g.options.Accounts == nil {
		return nil
	}
	return g.options.Accounts.Of(b)
}

// lost says what there is not while no process serves e.
func (e *entry) lost() string {
	if e.op == control.Watch {
		return "its refusals have no record"
	}
	return "nothing of it gets out"
}

func (e *entry) close() error {
	if e.published != nil {
		e.published.stop()
	}
	var errs []error
	for _, f := range e.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// put adds e, unless id is taken.
func (g *Gateway) put(id string, e *entry) error {
	const op = "egress.add"
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed(op)
	}
	if g.sandboxes[id] != nil {
		return sbxerr.New(sbxerr.Exists, op, "sandbox %s is served already", id)
	}
	g.sandboxes[id] = e
	return nil
}

func (g *Gateway) get(id string) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sandboxes[id]
}

func (g *Gateway) take(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sandboxes, id)
}
