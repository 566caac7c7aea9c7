package proxy

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

func TestCarries(t *testing.T) {
	spec := allow("a.test:22", "9.9.9.0/24:23", "db.corp:5432,private")
	spec.Map = map[string]string{"m.test": "10.0.0.1:8080"}
	spec.Allow = append(spec.Allow, "m.test:25")
	b := start(t, spec, echo, nil)
	b.resolver.set("db.corp", "127.0.0.7")
	for _, tc := range []struct {
		host    string
		port    uint16
		address string
		rule    string
	}{
		{"a.test", 22, "9.9.9.9:22", "allow a.test:22"},
		{"9.9.9.7", 23, "9.9.9.7:23", "allow 9.9.9.0/24:23"},
		{"db.corp", 5432, "127.0.0.7:5432", "allow db.corp:5432,private"},
		{"m.test", 25, "10.0.0.1:8080", "allow m.test:25"},
	} {
		got, err := talk(b.dial(tc.host, tc.port), "hello")
		if got != "hello" || err != nil {
			t.Errorf("%s: %q, %v", tc.host, got, err)
		}
		a := b.record()
		if a.Verdict != attempt.Allowed || a.Address.String() != tc.address || a.Rule != tc.rule || a.Sent != 5 || a.Received != 5 || a.Sandbox != "box" ||
			a.Asked.Port() != tc.port || a.Begun.IsZero() || a.Duration <= 0 || a.Code != "" || a.Reason != "" {
			t.Errorf("%s: %+v", tc.host, a)
		}
		if dialed := b.dialer.all(); dialed[len(dialed)-1] != tc.address {
			t.Errorf("%s: dialled %q", tc.host, dialed)
		}
	}
	if slices.Contains(b.resolver.asked, "m.test") {
		t.Error("a mapped name was resolved")
	}
}

// refusals end in a reset on a port of which nothing is known.
func TestRefuses(t *testing.T) {
	spec := allow("a.test:22", "*.test:22", "169.254.169.254:80,private", "mixed.example:22", "gone.example:22")
	spec.Allow = []string{"a.test:22", "in.example:22", "meta.example:22", "mixed.example:22", "gone.example:22", "mapped6.example:22"}
	spec.Deny = []string{"9.9.9.66"}
	b := start(t, spec, echo, nil)
	b.resolver.set("in.example", "10.0.0.1")
	b.resolver.set("meta.example", "169.254.169.254")
	b.resolver.set("mapped6.example", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "9.9.9.66")
	b.resolver.set("mixed.example", "127.0.0.1", "9.9.9.6", "10.0.0.1")
	for _, tc := range []struct {
		host string
		port uint16
		want string
	}{
		{"a.test", 23, "refused a.test invalid AddrPort mode allow SBX-701"},
		{"evil.example", 22, "refused evil.example invalid AddrPort mode allow SBX-701"},
		{"9.9.9.9", 22, "refused  invalid AddrPort mode allow SBX-701"},
		{"127.0.0.1", 22, "refused  invalid AddrPort mode allow SBX-701"},
		{"169.254.169.254", 22, "refused  invalid AddrPort mode allow SBX-701"},
		{"198.18.77.77", 22, "refused  invalid AddrPort pool SBX-701"},
		{"in.example", 22, "refused in.example invalid AddrPort allow in.example:22 SBX-702"},
		{"meta.example", 22, "refused meta.example invalid AddrPort allow meta.example:22 SBX-702"},
		{"mapped6.example", 22, "refused mapped6.example invalid AddrPort allow mapped6.example:22 SBX-702"},
		{"gone.example", 22, "failed gone.example invalid AddrPort allow gone.example:22 SBX-704"},
	} {
		got, err := io.ReadAll(b.dial(tc.host, tc.port))
		if len(got) != 0 || err == nil {
			t.Errorf("%s: %q, %v; want a reset", tc.host, got, err)
		}
		if a := b.record(); summary(a) != tc.want || a.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", tc.host, summary(a), a.Reason, tc.want)
		}
	}
	if dialed := b.dialer.all(); len(dialed) != 0 {
		t.Errorf("dialled %q", dialed)
	}
	// The control: of a name with several addresses only the good one is dialled.
	if got, err := talk(b.dial("mixed.example", 22), "x"); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if a, dialed := b.record(), b.dialer.all(); !slices.Equal(dialed, []string{"9.9.9.6:22"}) || a.Address.String() != "9.9.9.6:22" {
		t.Errorf("dialled %q, %+v", dialed, a)
	}
}

// A name that is an alias of a denied one is denied, also when the rule comes later.
func TestAliasOfADeniedName(t *testing.T) {
	spec := allow("good.example:22")
	b := start(t, spec, echo, nil)
	b.resolver.set("good.example", "9.9.9.9")
	b.resolver.aliases = map[policy.Name][]policy.Name{"good.example": {"cdn.test", "bad.test"}}
	c := b.dial("good.example", 22)
	if _, err := c.Write([]byte("x")); err != nil { // the control
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	spec.Deny = []string{"bad.test"}
	b.SetPolicy(compile(t, spec))
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection lives on")
	}
	b.record()
	if got, err := io.ReadAll(b.dial("good.example", 22)); len(got) != 0 || err == nil {
		t.Errorf("%q, %v; want a reset", got, err)
	}
	if a := b.record(); summary(a) != "refused good.example invalid AddrPort deny bad.test SBX-701" || !strings.Contains(a.Reason, "an alias of bad.test") {
		t.Errorf("%s (%s)", summary(a), a.Reason)
	}
	spec.Deny = []string{"bad.test:23"} // another port
	b.SetPolicy(compile(t, spec))
	if got, err := talk(b.dial("good.example", 22), "x"); got != "x" || err != nil {
		t.Errorf("a rule about another port: %q, %v", got, err)
	}
}

// A name that answers differently each time is resolved once for a connection,
// and what was checked is what is dialled.
func TestRebinding(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	b.dialer.before = func() { b.resolver.set("a.test", "127.0.0.1") }
	if got, err := talk(b.dial("a.test", 22), "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if len(b.resolver.asked) != 1 || !slices.Equal(b.dialer.all(), []string{"9.9.9.9:22"}) {
		t.Errorf("resolved %v, dialled %q", b.resolver.asked, b.dialer.all())
	}
	b.record()
	if _, err := io.ReadAll(b.dial("a.test", 22)); err == nil {
		t.Error("the second connection was not reset")
	}
	if a := b.record(); a.Code != sbxerr.EgressAddress || len(b.dialer.all()) != 1 {
		t.Errorf("%+v, dialled %q", a, b.dialer.all())
	}
}

func TestDialTriesAddressesInTurn(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	b.resolver.set("a.test", "9.9.9.1", "9.9.9.2", "2a00::1")
	b.dialer.dead = []string{"9.9.9.1:22", "9.9.9.2:22"}
	if got, err := talk(b.dial("a.test", 22), "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if a := b.record(); a.Address.String() != "[2a00::1]:22" {
		t.Errorf("%+v", a)
	}
	b.resolver.set("a.test", "9.9.9.1", "9.9.9.1", "9.9.9.1", "9.9.9.1", "9.9.9.3")
	if _, err := io.ReadAll(b.dial("a.test", 22)); err == nil {
		t.Error("not reset")
	}
	if a := b.record(); a.Verdict != attempt.Failed || a.Code != sbxerr.EgressDial || len(b.dialer.all()) != 3+maxTries {
		t.Errorf("%+v after %q", a, b.dialer.all())
	}
}

func TestHalfClose(t *testing.T) {
	turn := make(chan struct{})
	b := start(t, allow("a.test:22"), func(c *net.TCPConn) {
		all, _ := io.ReadAll(c) // until the client says that it is done
		<-turn
		_, _ = fmt.Fprintf(c, "got %s", all)
	}, nil)
	c := b.dial("a.test", 22)
	if _, err := c.Write([]byte("all")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(turn)
	if got, err := io.ReadAll(c); string(got) != "got all" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Allowed || a.Sent != 3 || a.Received != 7 {
		t.Errorf("%+v", a)
	}
}

// The server may be the first to end its half, and the client goes on.
func TestHalfCloseOfTheServer(t *testing.T) {
	got := make(chan string, 1)
	b := start(t, allow("a.test:22"), func(c *net.TCPConn) {
		_, _ = c.Write([]byte("banner"))
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	}, nil)
	c := b.dial("a.test", 22)
	if banner, err := io.ReadAll(c); string(banner) != "banner" || err != nil {
		t.Fatalf("%q, %v", banner, err)
	}
	if _, err := c.Write([]byte("later")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if all := <-got; all != "later" {
		t.Errorf("%q", all)
	}
}

// A reset of one side is a reset of the other.
func TestReset(t *testing.T) {
	b := start(t, allow("a.test:22"), func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
	}, nil)
	c := b.dial("a.test", 22)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err == nil || len(got) != 0 {
		t.Errorf("%q, %v; want a reset", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Allowed || a.Reason == "" || a.Sent != 1 {
		t.Errorf("%+v", a)
	}
}

func TestPolicyChangeCuts(t *testing.T) {
	b := start(t, allow("a.test:22", "b.test:22", "9.9.9.7:23"), echo, nil)
	ping := func(c *net.TCPConn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	gone, kept, addr := b.dial("a.test", 22), b.dial("b.test", 22), b.dial("9.9.9.7", 23)
	for _, c := range []*net.TCPConn{gone, kept, addr} {
		if err := ping(c); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	b.SetPolicy(compile(t, policy.Spec{Mode: policy.Allow, Allow: []string{"a.test:22", "b.test:22", "9.9.9.7:23"}, Deny: []string{"9.9.9.9", "9.9.9.7:23"}}))
	for name, c := range map[string]*net.TCPConn{"name": gone, "address": addr} {
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			t.Errorf("%s: the flow goes on", name)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("cut after %v", took)
	}
	if err := ping(kept); err != nil {
		t.Errorf("what is still allowed was cut: %v", err)
	}
	rules := []string{}
	for range 2 {
		a := b.record()
		if a.Verdict != attempt.Cut || a.Code != sbxerr.EgressDenied || a.Sent != 1 || a.Received != 1 {
			t.Errorf("%+v", a)
		}
		rules = append(rules, a.Rule)
	}
	if slices.Sort(rules); !slices.Equal(rules, []string{"deny 9.9.9.7:23", "deny 9.9.9.9"}) {
		t.Errorf("%q", rules)
	}
	b.SetPolicy(nil)
	if err := ping(kept); err == nil {
		t.Error("no policy lets a flow go on")
	}
}

// A connection that is being made when the rule goes must not come through.
func TestPolicyChangeWhileConnecting(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	b.dialer.before = func() { b.SetPolicy(compile(t, allow("b.test:22"))) }
	if got, err := talk(b.dial("a.test", 22), "x"); err == nil || got != "" {
		t.Errorf("%q, %v; want a reset", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied || a.Sent != 0 {
		t.Errorf("%+v", a)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Limits.Idle = 400 * time.Millisecond })
	c := b.dial("a.test", 22)
	begun := time.Now()
	for time.Since(begun) < 800*time.Millisecond { // busy for longer than the limit
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("cut while busy, after %v: %v", time.Since(begun), err)
		}
		<-time.After(50 * time.Millisecond)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("want a reset")
	}
	if a := b.record(); a.Verdict != attempt.Idle || a.Rule != "idle time" || a.Sent == 0 {
		t.Errorf("%+v", a)
	}
}

// expectSurplus expects the record of one that a limit ended at once.
func (b *bench) expectSurplus() {
	b.t.Helper()
	b.Flush()
	if a := b.record(); a.Verdict != attempt.Refused || a.Rule != "limit of connections" || a.Code != sbxerr.EgressBusy || a.Name != "a.test" || a.Asked.Port() != 22 || a.Skipped != 0 {
		b.t.Errorf("one too many has the record %+v", a)
	}
}

func TestLimits(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Limits.Connections = 2 })
	first, second := b.dial("a.test", 22), b.dial("a.test", 22)
	b.expectReset()
	b.expectSurplus()
	b.expectReset()
	_ = first.Close()
	for counted := uint64(0); counted < 2; { // in one record or two: it may be late
		counted += 1 + b.record().Skipped
	}
	if got, err := talk(b.dial("a.test", 22), "x"); got != "x" || err != nil {
		t.Errorf("with room again: %q, %v", got, err)
	}
	_ = second.Close()
}

func TestLimitOfNewConnections(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Limits.NewPerSecond, c.Limits.NewBurst = 1, 1 })
	if got, err := talk(b.dial("a.test", 22), "x"); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	b.expectReset()
}

func TestServeEnds(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	c := b.dial("a.test", 22)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection outlives the proxy")
	}
	if a := b.record(); a.Verdict != attempt.Stopped {
		t.Errorf("%+v", a)
	}
	if _, err := net.Dial("tcp", b.listener.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
}

// What did not come about before the end is no connection, and what was refused stays so.
func TestServeEndsBefore(t *testing.T) {
	s := stuck{make(chan string, 8)}
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Dialer = s })
	b.dial("a.test", 22)
	<-s.asked
	b.stop()
	if a := b.record(); a.Verdict != attempt.Failed || a.Code != sbxerr.Canceled || a.Reason != endedBefore {
		t.Errorf("while it is dialled: %+v", a)
	}
	b = start(t, allow("a.test"), echo, nil)
	c := b.dial("b.test", 80)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // it is being told
		t.Fatal(err)
	}
	b.stop()
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied {
		t.Errorf("while it is refused: %+v", a)
	}
}

func TestOriginFails(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Origin = OriginalDestination })
	b.expectReset()
	// Without a redirect the kernel knows none, or names the listener itself.
	if a := b.record(); a.Verdict == attempt.Allowed || a.Code != sbxerr.Gateway && a.Code != sbxerr.EgressDenied {
		t.Errorf("%+v", a)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}, nil); sbxerr.Of(err) != sbxerr.Internal {
		t.Errorf("%v", err)
	}
	_, err := New(Config{Names: &bench{}, Resolver: &fakeResolver{}, Local: (&ownAddresses{}).has}, nil)
	if err == nil || strings.Count(err.Error(), "never means unlimited") != 7 {
		t.Errorf("%v", err)
	}
}

func (b *bench) Name(netip.Addr) (policy.Name, bool) { return "", false }

func TestSockaddrIn(t *testing.T) {
	got, err := sockaddrIn([16]byte{2, 0, 0x01, 0xbb, 198, 18, 0, 7})
	if err != nil || got.String() != "198.18.0.7:443" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := sockaddrIn([16]byte{10}); err == nil {
		t.Errorf("%v", got)
	}
}

func TestDialerWithoutTCP(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, func(c *Config) { c.Dialer = unixDialer{t.TempDir() + "/s"} })
	if _, err := io.ReadAll(b.dial("a.test", 22)); err == nil {
		t.Error("want a reset")
	}
	if a := b.record(); a.Code != sbxerr.EgressDial || !strings.Contains(a.Reason, "not a TCP connection") {
		t.Errorf("%+v", a)
	}
}
