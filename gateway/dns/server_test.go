package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

func rrName(i int) policy.Name { return policy.Name(fmt.Sprintf("h%d.test", i)) }

// zone is an upstream resolver: what it answers by "name type", and all that it
// was asked.
type zone struct {
	mu      sync.Mutex
	records map[string][]string
	rcode   int           // of every answer
	silent  uint16        // type that is never answered
	mute    string        // network over which nothing is answered
	edns    int           // of every answer to a question with EDNS; -1: there is none
	deaf    string        // how names end that are never answered; empty: none do
	big     bool          // answers over UDP are truncated
	gate    chan struct{} // if set, answers wait for it
	asked   []string
}

func (z *zone) ServeDNS(w miekg.ResponseWriter, q *miekg.Msg) {
	key := q.Question[0].Name + " " + miekg.TypeToString[q.Question[0].Qtype]
	z.mu.Lock()
	z.asked = append(z.asked, w.LocalAddr().Network()+" "+key)
	rcode := z.rcode
	extended := q.IsEdns0() != nil && z.edns != 0
	if extended {
		rcode = max(z.edns, 0)
	}
	r := new(miekg.Msg).SetRcode(q, rcode)
	records, known := z.records[key]
	silent := extended && z.edns < 0 || z.silent == q.Question[0].Qtype || z.mute == w.LocalAddr().Network() || z.deaf != "" && strings.HasSuffix(q.Question[0].Name, z.deaf)
	big, gate := z.big && w.LocalAddr().Network() == "udp" && q.IsEdns0() == nil, z.gate
	z.mu.Unlock()
	if gate != nil {
		<-gate
	}
	for _, text := range records {
		record, err := miekg.NewRR(text)
		if err != nil {
			panic(err)
		}
		r.Answer = append(r.Answer, record)
	}
	if !known && rcode == 0 {
		r.Rcode = miekg.RcodeNameError
	}
	if big {
		r.Truncated, r.Answer = true, nil
	}
	if !silent {
		_ = w.WriteMsg(r)
	}
}

func (z *zone) change(fn func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	fn()
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}

// startZone serves z on loopback, over UDP and TCP.
func startZone(t testing.TB, z *zone) netip.AddrPort {
	t.Helper()
	pc, l := sockets(t)
	var all sync.WaitGroup
	for _, s := range []*miekg.Server{{PacketConn: pc, Handler: z}, {Listener: l, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		all.Go(func() { _ = s.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// sockets opens a UDP and a TCP socket on one port of loopback.
func sockets(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, l
		}
		_ = pc.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// records collects what the observer is told.
type records struct {
	mu      sync.Mutex
	all     []lookup.Query
	surplus []lookup.Query
}

func (r *records) Surplus(q lookup.Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surplus = append(r.surplus, q)
}

func (r *records) Queried(q lookup.Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, q)
}

func (r *records) last() lookup.Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return lookup.Query{}
	}
	return r.all[len(r.all)-1]
}

func (r *records) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// bench is a running resolver of a sandbox and all around it.
type bench struct {
	zone   *zone
	pool   *lookup.Pool
	seen   *records
	policy atomic.Pointer[policy.Policy]
	addr   string
	stop   context.CancelFunc
	over   chan struct{} // closed when Serve has returned
}

func start(t *testing.T, spec policy.Spec, change func(*Config)) *bench {
	t.Helper()
	b := &bench{seen: &records{}, pool: newPool(t, 100, nil), zone: &zone{records: map[string][]string{
		"a.test. A": {"a.test. 60 IN A 9.9.9.9"}, "a.test. AAAA": {},
		"six.test. A": {}, "six.test. AAAA": {"six.test. 60 IN AAAA 2a00::1"},
		"empty.test. A": {}, "empty.test. AAAA": {},
		"secret.test. A": {"secret.test. 60 IN A 9.9.9.9"},
	}}}
	b.set(t, spec)
	up, err := NewUpstream([]netip.AddrPort{startZone(t, b.zone)})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Sandbox: "box", Policy: b.policy.Load, Pool: b.pool, Resolver: up.Share(), Observer: b.seen, Limits: DefaultLimits}
	if change != nil {
		change(&c)
	}
	pc, l := sockets(t)
	b.addr = pc.LocalAddr().String()
	ctx, cancel := context.WithCancel(t.Context())
	b.stop, b.over = cancel, make(chan struct{})
	var ended error
	go func() { ended = Serve(ctx, c, pc, l); close(b.over) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-b.over:
			if ended != nil {
				t.Error(ended)
			}
		case <-time.After(5 * time.Second):
			t.Error("Serve did not end")
		}
	})
	return b
}

func (b *bench) set(t *testing.T, spec policy.Spec) {
	t.Helper()
	p, err := policy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	b.policy.Swap(p.On(nil)).End()
}

func (b *bench) ask(t *testing.T, network string, q *miekg.Msg) *miekg.Msg {
	t.Helper()
	client := miekg.Client{Net: network, Timeout: 5 * time.Second}
	r, _, err := client.Exchange(q, b.addr)
	if err != nil {
		t.Fatalf("%s %v: %v", network, q.Question, err)
	}
	return r
}

func question(name string, qtype uint16) *miekg.Msg {
	q := new(miekg.Msg).SetQuestion(name, qtype)
	return q.SetEdns0(1232, false)
}

// extended is the text of the extended error in r, if there is one.
func extended(r *miekg.Msg) (uint16, string) {
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if ede, ok := o.(*miekg.EDNS0_EDE); ok {
				return ede.InfoCode, ede.ExtraText
			}
		}
	}
	return 0, ""
}

var allowed = policy.Spec{
	Mode: policy.Allow, Allow: []string{"a.test:22", "six.test", "empty.test", "absent.test", "*.wild.test.example"},
	Map: map[string]string{"mapped.test": "10.0.0.1"}, Deny: []string{"no.wild.test.example"},
}

func TestAnswers(t *testing.T) {
	b := start(t, allowed, nil)
	for _, network := range []string{"udp", "tcp"} {
		for _, tc := range []struct {
			name    string
			qtype   uint16
			rcode   int
			verdict lookup.Verdict
			rule    string
		}{
			{"a.test.", miekg.TypeA, miekg.RcodeSuccess, lookup.Answered, "allow a.test:22"},
			{"A.TEST.", miekg.TypeA, miekg.RcodeSuccess, lookup.Answered, "allow a.test:22"},
			{"six.test.", miekg.TypeA, miekg.RcodeSuccess, lookup.Answered, "allow six.test:80+443"}, // the gateway speaks IPv6
			{"mapped.test.", miekg.TypeA, miekg.RcodeSuccess, lookup.Answered, "map mapped.test=10.0.0.1"},
			{"empty.test.", miekg.TypeA, miekg.RcodeSuccess, lookup.Empty, "allow empty.test:80+443"},
			{"absent.test.", miekg.TypeA, miekg.RcodeNameError, lookup.Absent, "allow absent.test:80+443"},
			{"x.wild.test.example.", miekg.TypeA, miekg.RcodeNameError, lookup.Absent, "allow *.wild.test.example:80+443"},
			{"a.test.", miekg.TypeAAAA, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"six.test.", miekg.TypeAAAA, miekg.RcodeSuccess, lookup.Empty, "allow six.test:80+443"},
			{"a.test.", miekg.TypeHTTPS, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"a.test.", miekg.TypeSVCB, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"a.test.", miekg.TypeTXT, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"a.test.", miekg.TypeANY, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"a.test.", miekg.TypeMX, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"a.test.", 65280, miekg.RcodeSuccess, lookup.Empty, "allow a.test:22"},
			{"no.wild.test.example.", miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "deny no.wild.test.example"},
			{"secret.test.", miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "mode allow"},
			{"secret.test.", miekg.TypeAAAA, miekg.RcodeNameError, lookup.Refused, "mode allow"},
			{"secret.test.", miekg.TypeTXT, miekg.RcodeNameError, lookup.Refused, "mode allow"},
			{"secret.test.", miekg.TypeHTTPS, miekg.RcodeNameError, lookup.Refused, "mode allow"},
			{"1.18.198.in-addr.arpa.", miekg.TypePTR, miekg.RcodeNameError, lookup.Refused, "mode allow"},
			{"169.254.169.254.", miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "name"},
			{".", miekg.TypeNS, miekg.RcodeNameError, lookup.Refused, "name"},
			{`a\.b.a.test.`, miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "name"},
			{`a\000.test.`, miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "name"},
			{strings.Repeat("a.", 20) + "wild.test.example.", miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "name"},
			{strings.Repeat(strings.Repeat("a", 60)+".", 4) + "a.test.", miekg.TypeA, miekg.RcodeNameError, lookup.Refused, "name"},
		} {
			r := b.ask(t, network, question(tc.name, tc.qtype))
			got := b.seen.last()
			if r.Rcode != tc.rcode || got.Verdict != tc.verdict || got.Rule != tc.rule || got.Sandbox != "box" {
				t.Errorf("%s %s %d: %s, %+v", network, tc.name, tc.qtype, miekg.RcodeToString[r.Rcode], got)
			}
			b.checkAnswer(t, tc.name, tc.verdict, r)
			if info, text := extended(r); (tc.verdict == lookup.Refused) != (info == miekg.ExtendedErrorCodeBlocked && strings.HasPrefix(text, "SBX-701: ")) {
				t.Errorf("%s: extended error %d %q", tc.name, info, text)
			}
		}
	}
}

func (b *bench) checkAnswer(t *testing.T, name string, verdict lookup.Verdict, r *miekg.Msg) {
	t.Helper()
	if verdict != lookup.Answered {
		if len(r.Answer)+len(r.Ns) != 0 {
			t.Errorf("%s: %v", name, r.Answer)
		}
		return
	}
	if len(r.Answer) != 1 || r.Answer[0].Header().Name != name {
		t.Fatalf("%s: %v", name, r.Answer)
	}
	addr, _ := netip.AddrFromSlice(r.Answer[0].(*miekg.A).A.To4())
	means, _ := b.pool.Name(addr)
	if want := strings.ToLower(strings.TrimSuffix(name, ".")); string(means) != want || !policy.Pool.Contains(addr) || b.seen.last().Address != addr {
		t.Errorf("%s: %s means %q", name, addr, means)
	}
}

// Nothing that is not allowed causes a packet. The control: what is allowed does.
func TestNothingIsForwarded(t *testing.T) {
	b := start(t, allowed, nil)
	for _, name := range []string{"data.attacker.test.", "secret.test.", "no.wild.test.example.", "test.", "a.test.evil.test.", "mapped.test."} {
		for _, qtype := range []uint16{miekg.TypeA, miekg.TypeAAAA, miekg.TypeTXT, miekg.TypeHTTPS} {
			b.ask(t, "udp", question(name, qtype))
		}
	}
	for _, qtype := range []uint16{miekg.TypeTXT, miekg.TypeHTTPS, miekg.TypeANY} {
		b.ask(t, "udp", question("a.test.", qtype))
	}
	if got := b.zone.questions(); len(got) != 0 {
		t.Errorf("upstream was asked %q", got)
	}
	b.ask(t, "udp", question("A.test.", miekg.TypeA))
	got := b.zone.questions()
	slices.Sort(got)
	if want := []string{"udp a.test. A", "udp a.test. AAAA"}; !slices.Equal(got, want) {
		t.Errorf("upstream was asked %q, want %q", got, want)
	}
}

// Programs ask for both families. A name that fails for one of them alone has no address for
// them, which is final.
func TestBothFamiliesFailAlike(t *testing.T) {
	b := start(t, allowed, nil)
	ask := func(name string, want int) {
		t.Helper()
		for _, qtype := range []uint16{miekg.TypeAAAA, miekg.TypeA} {
			if r := b.ask(t, "udp", question(name, qtype)); r.Rcode != want {
				t.Errorf("%s %s: %s, want %s", name, miekg.TypeToString[qtype], miekg.RcodeToString[r.Rcode], miekg.RcodeToString[want])
			}
		}
	}
	ask("absent.test.", miekg.RcodeNameError)
	b.zone.change(func() { b.zone.rcode = miekg.RcodeServerFailure })
	ask("a.test.", miekg.RcodeServerFailure)
	b.zone.change(func() { b.zone.rcode = miekg.RcodeSuccess })
	ask("a.test.", miekg.RcodeSuccess)
}

// calls is a Resolver that tells when it is asked.
type calls struct {
	Resolver
	each chan<- policy.Name
}

func (c calls) Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error) {
	c.each <- name
	return c.Resolver.Resolve(ctx, name)
}

// The questions for both families of a new name count once.
func TestBothFamiliesAreOneNewName(t *testing.T) {
	asked, gate := make(chan policy.Name, 2), make(chan struct{})
	b := start(t, allowed, func(c *Config) {
		c.Limits.NewBurst, c.Limits.NewPerSecond, c.Resolver = 1, 1, calls{c.Resolver, asked}
	})
	b.zone.change(func() { b.zone.gate = gate })
	answers := make(chan int, 2)
	for _, qtype := range []uint16{miekg.TypeA, miekg.TypeAAAA} {
		go func() { answers <- b.ask(t, "udp", question("a.test.", qtype)).Rcode }()
		select {
		case <-asked:
		case <-time.After(3 * time.Second):
			t.Errorf("%s is not asked for", miekg.TypeToString[qtype])
		}
	}
	if r := b.ask(t, "udp", question("six.test.", miekg.TypeA)); r.Rcode != miekg.RcodeRefused {
		t.Errorf("control: another new name: %s", miekg.RcodeToString[r.Rcode])
	}
	close(gate)
	for range 2 {
		if rcode := <-answers; rcode != miekg.RcodeSuccess {
			t.Errorf("%s", miekg.RcodeToString[rcode])
		}
	}
}

// A client that does not speak EDNS gets none.
func TestPlainClients(t *testing.T) {
	b := start(t, allowed, nil)
	r := b.ask(t, "udp", new(miekg.Msg).SetQuestion("secret.test.", miekg.TypeA))
	if r.Rcode != miekg.RcodeNameError || len(r.Extra) != 0 {
		t.Errorf("%v", r)
	}
	if r := b.ask(t, "udp", question("secret.test.", miekg.TypeA)); !strings.HasSuffix(extendedText(r), "--allow secret.test") {
		t.Errorf("extended error %q does not say what would help", extendedText(r))
	}
}

func extendedText(r *miekg.Msg) string {
	_, text := extended(r)
	return text
}

func TestMalformed(t *testing.T) {
	b := start(t, allowed, nil)
	for name, tc := range map[string]struct {
		change func(*miekg.Msg)
		rcode  int
	}{
		"two questions": {func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }, miekg.RcodeFormatError},
		"no question":   {func(m *miekg.Msg) { m.Question = nil }, miekg.RcodeFormatError},
		"with answers":  {func(m *miekg.Msg) { m.Answer = []miekg.RR{rr(t, "a.test. 1 IN A 6.6.6.6")} }, miekg.RcodeFormatError},
		"authority":     {func(m *miekg.Msg) { m.Ns = []miekg.RR{rr(t, "a.test. 1 IN NS b.test.")} }, miekg.RcodeFormatError},
		"two extras":    {func(m *miekg.Msg) { m.Extra = append(m.Extra, rr(t, "a.test. 1 IN A 6.6.6.6")) }, miekg.RcodeFormatError},
		"notify":        {func(m *miekg.Msg) { m.Opcode = miekg.OpcodeNotify }, miekg.RcodeNotImplemented},
		"update":        {func(m *miekg.Msg) { m.Opcode = miekg.OpcodeUpdate }, miekg.RcodeNotImplemented},
		"class":         {func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS }, miekg.RcodeNameError},
		"any class":     {func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassANY }, miekg.RcodeNameError},
	} {
		q := question("a.test.", miekg.TypeA)
		tc.change(q)
		if r := b.ask(t, "udp", q); r.Rcode != tc.rcode {
			t.Errorf("%s: %s", name, miekg.RcodeToString[r.Rcode])
		}
	}
	if got := b.zone.questions(); len(got) != 0 {
		t.Errorf("upstream was asked %q", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	busy := func(t *testing.T, r *miekg.Msg) {
		t.Helper()
		if info, text := extended(r); r.Rcode != miekg.RcodeRefused || info != miekg.ExtendedErrorCodeProhibited || !strings.HasPrefix(text, "SBX-706") {
			t.Errorf("%s %d %q", miekg.RcodeToString[r.Rcode], info, text)
		}
	}
	t.Run("rate", func(t *testing.T) {
		b := start(t, allowed, func(c *Config) { c.Limits.PerSecond, c.Limits.Burst = 1, 3 })
		var refused int
		for range 6 {
			if r := b.ask(t, "udp", question("a.test.", miekg.TypeAAAA)); r.Rcode != miekg.RcodeSuccess {
				busy(t, r)
				refused++
			}
		}
		if refused < 2 || b.seen.count() != 6-refused {
			t.Errorf("%d of 6 refused, %d records", refused, b.seen.count())
		}
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		want := lookup.Query{Sandbox: "box", Name: "a.test", Type: "AAAA", Verdict: lookup.Refused, Rule: "limit of questions", Code: sbxerr.EgressBusy, Reason: "too many; ask again later"}
		if len(b.seen.surplus) != refused || b.seen.surplus[0] != want {
			t.Errorf("%d questions have no record, and told is %+v", refused, b.seen.surplus)
		}
	})
	t.Run("new names", func(t *testing.T) {
		b := start(t, allowed, func(c *Config) { c.Limits.NewPerSecond, c.Limits.NewBurst = 1, 2 })
		b.ask(t, "udp", question("a.test.", miekg.TypeA))
		b.ask(t, "udp", question("data1.wild.test.example.", miekg.TypeA))
		busy(t, b.ask(t, "udp", question("data2.wild.test.example.", miekg.TypeA)))
		if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); r.Rcode != miekg.RcodeSuccess {
			t.Errorf("a known name: %s", miekg.RcodeToString[r.Rcode])
		}
		if slices.Contains(b.zone.questions(), "udp data2.wild.test.example. A") {
			t.Error("the name past the limit went upstream")
		}
	})
	t.Run("names", func(t *testing.T) {
		b := start(t, allowed, func(c *Config) { c.Pool = newPool(t, 1, nil) })
		b.ask(t, "udp", question("a.test.", miekg.TypeA))
		busy(t, b.ask(t, "udp", question("six.test.", miekg.TypeA)))
		if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); r.Rcode != miekg.RcodeSuccess {
			t.Errorf("a known name: %s", miekg.RcodeToString[r.Rcode])
		}
	})
	t.Run("length", func(t *testing.T) {
		for _, change := range []func(*Config){func(c *Config) { c.Limits.NameBytes = 22 }, func(c *Config) { c.Limits.Labels = 3 }} {
			b := start(t, allowed, change)
			if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); len(r.Answer) != 1 {
				t.Errorf("a short name: %v", r)
			}
			r := b.ask(t, "udp", question("data1.wild.test.example.", miekg.TypeA))
			if _, text := extended(r); r.Rcode != miekg.RcodeNameError || !strings.Contains(text, "the name has more than") {
				t.Errorf("%s %q", miekg.RcodeToString[r.Rcode], text)
			}
			if slices.Contains(b.zone.questions(), "udp data1.wild.test.example. A") {
				t.Error("the long name went upstream")
			}
		}
	})
	t.Run("connections", func(t *testing.T) {
		b := start(t, allowed, func(c *Config) { c.Limits.Connections = 1 })
		ask := func() *miekg.Conn {
			c, err := miekg.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if err := c.WriteMsg(question("a.test.", miekg.TypeA)); err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := ask()
		if r, err := first.ReadMsg(); err != nil || len(r.Answer) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		second := ask()
		_ = second.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if r, err := second.ReadMsg(); err == nil {
			t.Errorf("one too many: %v", r)
		}
		_ = first.Close()
		_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
		if r, err := second.ReadMsg(); err != nil || len(r.Answer) != 1 {
			t.Errorf("with room again: %v, %v", r, err)
		}
	})
	t.Run("pending", func(t *testing.T) {
		b := start(t, allowed, func(c *Config) { c.Limits.Pending = 1 })
		gate := make(chan struct{})
		b.zone.change(func() { b.zone.gate = gate })
		first := make(chan *miekg.Msg)
		go func() {
			r, _, _ := (&miekg.Client{Timeout: 10 * time.Second}).Exchange(question("a.test.", miekg.TypeA), b.addr)
			first <- r
		}()
		for len(b.zone.questions()) == 0 {
			<-time.After(5 * time.Millisecond)
		}
		busy(t, b.ask(t, "udp", question("six.test.", miekg.TypeA)))
		close(gate)
		if r := <-first; r == nil || len(r.Answer) != 1 {
			t.Errorf("the one that waited: %v", r)
		}
	})
}

func TestPolicyChangesLive(t *testing.T) {
	b := start(t, allowed, nil)
	before := b.ask(t, "udp", question("a.test.", miekg.TypeA))
	b.set(t, policy.Spec{})
	if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); r.Rcode != miekg.RcodeNameError {
		t.Errorf("after the rule went: %v", r)
	}
	b.set(t, policy.Spec{Mode: policy.Allow, Allow: []string{"a.test"}})
	after := b.ask(t, "udp", question("a.test.", miekg.TypeA))
	if len(after.Answer) != 1 || after.Answer[0].String() != before.Answer[0].String() {
		t.Errorf("the address changed from %v to %v", before.Answer, after.Answer)
	}
}

// A lookup ends with the rule that allowed it: at once, without an address, and nobody is
// asked for it any more. One of a name that is still allowed goes on.
func TestPolicyChangesWhileAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		after   string
		verdict lookup.Verdict
	}{"it goes": {"six.test", lookup.Refused}, "it stays": {"a.test", lookup.Answered}} {
		t.Run(name, func(t *testing.T) {
			b := start(t, allowed, nil)
			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open)
			b.zone.change(func() { b.zone.gate = gate })
			answer := make(chan *miekg.Msg, 1)
			go func() {
				r, _, _ := (&miekg.Client{Timeout: 10 * time.Second}).Exchange(question("a.test.", miekg.TypeA), b.addr)
				answer <- r
			}()
			for len(b.zone.questions()) < 2 { // of both families
				<-time.After(time.Millisecond)
			}
			b.set(t, policy.Spec{Mode: policy.Allow, Allow: []string{tc.after}})
			if tc.verdict == lookup.Answered {
				<-time.After(50 * time.Millisecond)
				open()
			}
			select {
			case r := <-answer:
				if r == nil || (r.Rcode == miekg.RcodeNameError) != (tc.verdict == lookup.Refused) {
					t.Errorf("%v", r)
				}
			case <-time.After(soon):
				t.Fatal("it goes on")
			}
			if got := b.seen.last(); got.Verdict != tc.verdict || tc.verdict == lookup.Refused && (got.Rule != "mode allow" || got.Code != sbxerr.EgressDenied) {
				t.Errorf("%+v", got)
			}
			if _, named := b.pool.Lookup("a.test"); named != (tc.verdict == lookup.Answered) {
				t.Errorf("it has an address: %t", named)
			}
		})
	}
}

// resolverFunc is a Resolver.
type resolverFunc func() error

func (f resolverFunc) Resolve(context.Context, policy.Name) (policy.Resolution, error) {
	return policy.Resolution{}, f()
}

// What a rule allowed that went while it was resolved is refused, whatever was found.
func TestPolicyChangesBeforeTheAnswer(t *testing.T) {
	for _, found := range []error{nil, ErrNoName, errors.New("nobody answers")} {
		var changed atomic.Bool
		b := start(t, allowed, func(c *Config) {
			inForce := c.Policy
			c.Policy = func() *policy.Policy {
				if changed.Load() {
					return nil
				}
				return inForce()
			}
			c.Resolver = resolverFunc(func() error { changed.Store(true); return found })
		})
		if r := b.ask(t, "udp", question("a.test.", miekg.TypeA)); r.Rcode != miekg.RcodeNameError || b.seen.last().Verdict != lookup.Refused {
			t.Errorf("%v: %v, %+v", found, r, b.seen.last())
		}
		if addr, named := b.pool.Lookup("a.test"); named {
			t.Errorf("%v: it has the address %s", found, addr)
		}
	}
}

func TestUpstreamFails(t *testing.T) {
	b := start(t, allowed, nil)
	b.zone.change(func() { b.zone.rcode = miekg.RcodeServerFailure })
	r := b.ask(t, "udp", question("a.test.", miekg.TypeA))
	info, text := extended(r)
	if r.Rcode != miekg.RcodeServerFailure || info != miekg.ExtendedErrorCodeNoReachableAuthority || strings.Contains(text, "127.0.0.1") || !strings.HasPrefix(text, "SBX-704") {
		t.Errorf("%s %d %q", miekg.RcodeToString[r.Rcode], info, text)
	}
	if got := b.seen.last(); got.Verdict != lookup.Failed || got.Code != sbxerr.EgressResolve || !strings.Contains(got.Reason, "SERVFAIL") {
		t.Errorf("%+v", got)
	}
}

func TestServeRefusesAbsentLimits(t *testing.T) {
	pc, l := sockets(t)
	c := Config{Policy: func() *policy.Policy { return nil }, Pool: newPool(t, 1, nil), Resolver: &Share{}}
	err := Serve(t.Context(), c, pc, l)
	if err == nil || strings.Count(err.Error(), "never means unlimited") != 8 {
		t.Errorf("%v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	pc, l = sockets(t)
	if err := Serve(t.Context(), Config{Limits: DefaultLimits}, pc, l); err == nil {
		t.Error("a resolver without a policy")
	}
}

func TestServeReportsAFailedSocket(t *testing.T) {
	pc, l := sockets(t)
	_ = l.Close()
	c := Config{Policy: func() *policy.Policy { return nil }, Pool: newPool(t, 1, nil), Resolver: &Share{}, Limits: DefaultLimits}
	if err := Serve(t.Context(), c, pc, l); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("%v", err)
	}
	if _, _, err := pc.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the other socket is open: %v", err)
	}
}

func newPool(t testing.TB, limit int, given map[policy.Name]netip.Addr) *lookup.Pool {
	t.Helper()
	p, err := lookup.NewPool(limit, given)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
