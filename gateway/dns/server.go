package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/limits"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/ratelog"
)

// Config is the resolver of one sandbox.
type Config struct {
	Sandbox  string                // for records
	Policy   func() *policy.Policy // the one in force; asked for each question
	Pool     *lookup.Pool
	Resolver Resolver
	// Elsewhere reports whether somebody else resolves an allowed name, so that
	// nobody is asked for it here; nil is for no name.
	Elsewhere func(*policy.Policy, policy.Name) bool
	Observer  Observer // nil: nobody looks
	Limits    Limits
}

// Limits bound what one sandbox may ask. Zero is an error and never means
// unlimited.
type Limits struct {
	PerSecond    int // questions, sustained
	Burst        int // questions at once
	NewPerSecond int // names not asked for before, sustained: what a tunnel through a wildcard needs
	NewBurst     int
	Pending      int // questions that wait for an upstream resolver: programs ask two for each name
	Connections  int // over TCP
	NameBytes    int // at most 253
	Labels       int
}

// DefaultLimits are generous for tools and tight for tunnels.
var DefaultLimits = Limits{
	PerSecond: 200, Burst: 1000, NewPerSecond: 20, NewBurst: 300, Pending: 128, Connections: 32, NameBytes: policy.MaxAsked, Labels: policy.MaxAskedLabels,
}

// validate reports all limits that are absent.
func (l Limits) validate() error {
	var errs []error
	for _, b := range []struct {
		name  string
		value int
	}{
		{"questions per second", l.PerSecond}, {"burst of questions", l.Burst}, {"new names per second", l.NewPerSecond}, {"burst of new names", l.NewBurst},
		{"pending questions", l.Pending}, {"connections", l.Connections}, {"bytes of a name", l.NameBytes}, {"labels of a name", l.Labels},
	} {
		if b.value <= 0 {
			errs = append(errs, fmt.Errorf("the limit of %s is %d, which never means unlimited", b.name, b.value))
		}
	}
	return errors.Join(errs...)
}

// Observer is told of questions. It must not block.
type Observer interface {
	Queried(lookup.Query)
	// Surplus is told of what a limit alone refused, of which there may be any number:
	// questions past the rate, and connections for which the gateway had no place, without
	// a name.
	Surplus(lookup.Query)
}

// server answers one sandbox.
type server struct {
	Config
	ctx     context.Context // ends what waits for an upstream; handlers of the library get none
	rate    *rate.Limiter
	fresh   *rate.Limiter
	pending chan struct{}

	mu     sync.Mutex
	asking map[policy.Name]int // questions for addresses that have no answer yet
}

// The deadlines of a client over TCP.
const (
	readTimeout  = 2 * time.Second
	idleTimeout  = 8 * time.Second
	writeTimeout = 2 * time.Second
)

// Serve answers on pc and l, which it closes, until ctx ends (the error is nil)
// or one of them fails.
func Serve(ctx context.Context, c Config, pc net.PacketConn, l net.Listener) error {
	if err := c.validate(); err != nil {
		return errors.Join(sbxerr.Wrap(sbxerr.Internal, "dns.serve", err), pc.Close(), l.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newServer(ctx, c)
	servers := []*miekg.Server{
		{PacketConn: packets{pc}, UDPSize: miekg.MinMsgSize * 2},
		{Listener: netutil.LimitListener(s.ending(l), c.Limits.Connections), MaxTCPQueries: 1024},
	}
	ended := make(chan error, len(servers))
	for _, m := range servers {
		m.Handler, m.MsgAcceptFunc = s, accept
		m.ReadTimeout = readTimeout
		m.IdleTimeout = func() time.Duration { return idleTimeout }
		go func() { ended <- m.ActivateAndServe() }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		ended <- nil // counted below
	}
	cancel()
	stop(servers, pc, l)
	for range servers {
		<-ended
	}
	return sbxerr.Wrap(sbxerr.Gateway, "dns.serve", err)
}

// ending is l, whose connections have places of their own among those of all sandboxes.
func (s *server) ending(l net.Listener) ending {
	return ending{l, s.ctx, limits.Connections.Share(), func() { s.suppress("", "", ratelog.RuleConnections) }}
}

// stop ends servers whether they have begun or not. Their errors say only that.
func stop(servers []*miekg.Server, pc net.PacketConn, l net.Listener) {
	_ = pc.Close()
	_ = l.Close()
	for _, m := range servers {
		_ = m.Shutdown()
	}
}

func (c Config) validate() error {
	if c.Policy == nil || c.Pool == nil || c.Resolver == nil {
		return errors.New("a resolver without policy, pool or upstream")
	}
	return c.Limits.validate()
}

func newServer(ctx context.Context, c Config) *server {
	return &server{
		Config: c, ctx: ctx,
		rate:    rate.NewLimiter(rate.Limit(c.Limits.PerSecond), c.Limits.Burst),
		fresh:   rate.NewLimiter(rate.Limit(c.Limits.NewPerSecond), c.Limits.NewBurst),
		pending: make(chan struct{}, c.Limits.Pending), asking: map[policy.Name]int{},
	}
}

// accept looks at a header alone: plain queries with one question, and at most
// one record with it, which EDNS is.
func accept(h miekg.Header) miekg.MsgAcceptAction {
	const response = 1 << 15
	switch opcode := int(h.Bits>>11) & 0xf; {
	case h.Bits&response != 0:
		return miekg.MsgIgnore
	case opcode != miekg.OpcodeQuery:
		return miekg.MsgRejectNotImplemented
	case h.Qdcount != 1 || h.Ancount != 0 || h.Nscount != 0 || h.Arcount > 1:
		return miekg.MsgReject
	}
	return miekg.MsgAccept
}

// ServeDNS answers q.
func (s *server) ServeDNS(w miekg.ResponseWriter, q *miekg.Msg) {
	begun := time.Now()
	if len(q.Question) != 1 { // the header may promise what does not follow
		_ = w.WriteMsg(new(miekg.Msg).SetRcodeFormatError(q))
		return
	}
	reply := new(miekg.Msg).SetReply(q)
	reply.RecursionAvailable = true
	size := ednsOf(q, reply)
	if !s.rate.Allow() {
		s.suppress(nameAsked(q.Question[0]), typeName(q.Question[0].Qtype), ratelog.RuleQuestions)
		tell(reply, miekg.RcodeRefused, miekg.ExtendedErrorCodeProhibited, string(sbxerr.EgressBusy)+": too many questions; ask again later")
	} else {
		record := s.answer(q.Question[0], reply)
		record.Duration = time.Since(begun)
		s.observe(record)
	}
	if w.LocalAddr().Network() == "tcp" {
		size = miekg.MaxMsgSize
	}
	reply.Truncate(size)
	_ = w.WriteMsg(reply) // who asked is gone, or asks again
}

func (s *server) observe(record lookup.Query) {
	if s.Observer == nil {
		return
	}
	record.Sandbox = s.Sandbox
	s.Observer.Queried(record)
}

// suppress records a question that the rule of a limit refused.
func (s *server) suppress(name, kind, rule string) {
	if s.Observer != nil {
		s.Observer.Surplus(lookup.Query{Sandbox: s.Sandbox, Name: name, Type: kind, Verdict: lookup.Refused, Rule: rule, Code: sbxerr.EgressBusy, Reason: "too many; ask again later"})
	}
}

// ednsOf puts an OPT record into reply if q has one, and returns the bytes that
// the client takes over UDP.
func ednsOf(q, reply *miekg.Msg) int {
	opt := q.IsEdns0()
	if opt == nil {
		return miekg.MinMsgSize
	}
	reply.SetEdns0(udpSize, false)
	return min(max(int(opt.UDPSize()), miekg.MinMsgSize), udpSize)
}

// packets hides that a connection is a UDP socket. Package dns sets socket options of one
// for hosts with several addresses, and the gateway's seccomp filter refuses these.
type packets struct{ net.PacketConn }
