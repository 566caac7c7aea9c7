package proxy

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// stuck is a resolver, a dialer and a linker that tell when they are asked, and never
// answer.
type stuck struct{ asked chan string }

func (s stuck) wait(ctx context.Context, what string) error {
	s.asked <- what
	<-ctx.Done()
	return ctx.Err()
}

func (s stuck) Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error) {
	return policy.Resolution{}, s.wait(ctx, "resolve "+string(name))
}

func (s stuck) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return nil, s.wait(ctx, "dial "+address)
}

func (s stuck) link(ctx context.Context, l policy.Link) (*net.TCPConn, func(), error) {
	return nil, nil, s.wait(ctx, "enter "+l.Sandbox)
}

// A rule that goes ends what it allowed, however far that has got.
func TestPolicyChangeInEachState(t *testing.T) {
	linked, relinked := allow(), allow()
	linked.Links = map[string]policy.Link{"db": {Sandbox: "one", Port: 22}}
	relinked.Links = map[string]policy.Link{"db": {Sandbox: "two", Port: 22}}
	mapped, remapped := allow("a.test:22"), allow("a.test:22")
	mapped.Map, remapped.Map = map[string]string{"a.test": "10.0.0.1"}, map[string]string{"a.test": "10.0.0.2"}
	denied := allow("a.test:22")
	denied.Deny = []string{"9.9.9.0/24"}
	resolves := func(c *Config, s stuck) { c.Resolver = s }
	dials := func(c *Config, s stuck) { c.Dialer = s }
	follows := func(c *Config, s stuck) { c.Link = s.link }
	for name, tc := range map[string]struct {
		before, after policy.Spec
		host          string
		port          uint16
		sticks        func(*Config, stuck)
		asked         string // and nothing else
		rule          string
	}{
		"TLS hello":        {allow("a.test"), allow("b.test"), "a.test", 443, resolves, "", "mode allow"},
		"HTTP head":        {allow("a.test"), allow("b.test"), "a.test", 80, resolves, "", "mode allow"},
		"resolve":          {allow("a.test:22"), allow("b.test:22"), "a.test", 22, resolves, "resolve a.test", "mode allow"},
		"dial":             {allow("a.test:22"), allow("b.test:22"), "a.test", 22, dials, "dial 9.9.9.9:22", "mode allow"},
		"dial, by address": {allow("a.test:22"), denied, "a.test", 22, dials, "dial 9.9.9.9:22", "deny 9.9.9.0/24"},
		"dial an address":  {allow("9.9.9.7:22"), allow("9.9.9.8:22"), "9.9.9.7", 22, dials, "dial 9.9.9.7:22", "mode allow"},
		"dial, mapped":     {mapped, remapped, "a.test", 22, dials, "dial 10.0.0.1:22", "map a.test=10.0.0.2"},
		"link":             {linked, relinked, "db", 22, follows, "enter one", "change of a link"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stuck{make(chan string, 8)}
			b := start(t, tc.before, echo, func(c *Config) { tc.sticks(c, s) })
			c := b.dial(tc.host, tc.port)
			if tc.asked == "" {
				b.expectWanted(1)
			} else if got := <-s.asked; got != tc.asked {
				t.Fatalf("asked to %s, want %s", got, tc.asked)
			}
			begun := time.Now()
			b.SetPolicy(compile(t, tc.after))
			if got, err := io.ReadAll(c); err == nil || len(got) > 0 {
				t.Errorf("%q, %v; want a reset", got, err)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("ended after %v", took)
			}
			a := b.record()
			if a.Verdict != attempt.Refused || a.Rule != tc.rule || a.Code != sbxerr.EgressDenied || a.Reason == "" || a.Address.IsValid() {
				t.Errorf("%+v", a)
			}
			if len(s.asked) > 0 {
				t.Errorf("afterwards it is asked to %s", <-s.asked)
			}
		})
	}
}

// What never answers holds up a connection for no longer than is allowed.
func TestTimesToConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		sticks func(*Config, stuck)
		asked  string
		code   sbxerr.Code
	}{
		"resolve": {func(c *Config, s stuck) { c.Resolver, c.Limits.Resolve = s, time.Second/4 }, "resolve a.test", sbxerr.EgressResolve},
		"dial":    {func(c *Config, s stuck) { c.Dialer, c.Limits.Connect = s, time.Second/4 }, "dial 9.9.9.9:22", sbxerr.EgressDial},
	} {
		t.Run(name, func(t *testing.T) {
			s := stuck{make(chan string, 8)}
			b := start(t, allow("a.test:22"), echo, func(c *Config) { tc.sticks(c, s) })
			c := b.dial("a.test", 22)
			if got := <-s.asked; got != tc.asked {
				t.Fatalf("asked to %s, want %s", got, tc.asked)
			}
			if got, err := io.ReadAll(c); err == nil || len(got) > 0 {
				t.Errorf("%q, %v; want a reset", got, err)
			}
			if a := b.record(); a.Verdict != attempt.Failed || a.Code != tc.code || a.Duration < time.Second/4 || a.Duration >= leastTry {
				t.Errorf("%+v", a)
			}
		})
	}
}

// expectWanted waits until as many connections are known to be allowed.
func (b *bench) expectWanted(n int) {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		wanted := 0
		b.mu.Lock()
		for f := range b.flows {
			if f.wanted {
				wanted++
			}
		}
		b.mu.Unlock()
		if wanted == n {
			return
		}
	}
	b.t.Fatalf("not %d connections", n)
}

// What is still allowed goes on, whatever state it is in.
func TestPolicyChangeSpares(t *testing.T) {
	b := start(t, allow("a.test"), web, nil)
	c := b.dial("a.test", 80)
	b.expectWanted(1)
	b.SetPolicy(compile(t, allow("a.test:80", "b.test")))
	if got, err := talk(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); err != nil || got == "" {
		t.Errorf("%q, %v", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Allowed {
		t.Errorf("%+v", a)
	}
}

// The upstream proxy is not asked for a name that is allowed no more.
func TestPolicyChangeBeforeTheProxyIsAsked(t *testing.T) {
	for name, answering := range map[string]bool{"while it is dialled": false, "while it answers": true} {
		t.Run(name, func(t *testing.T) {
			b, p := startThrough(t, outward, "", nil)
			change := func() { b.SetPolicy(compile(t, allow("b.example.com:22"))) }
			if !answering {
				b.dialer.before = change
			}
			c := b.dial("a.example.com", 22)
			var asked []string
			if answering {
				for ; len(asked) == 0; <-time.After(time.Millisecond) {
					asked = p.take()
				}
				change()
			}
			begun := time.Now()
			if got, err := io.ReadAll(c); err == nil || len(got) > 0 || time.Since(begun) > time.Second {
				t.Errorf("%q, %v after %v; want a reset", got, err, time.Since(begun))
			}
			if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressDenied || a.Rule != "mode allow" {
				t.Errorf("%+v", a)
			}
			if more := p.take(); !slices.Equal(more, nil) {
				t.Errorf("it is asked %q", more)
			}
		})
	}
}

// Who waits for what a policy allows learns that another one took its place.
func TestPolicyChangeEndsTheOneBefore(t *testing.T) {
	b := start(t, allow("a.test"), echo, nil)
	before := b.Policy()
	b.SetPolicy(nil)
	select {
	case <-before.Over():
	default:
		t.Error("it is not over")
	}
	b.SetPolicy(compile(t, allow("a.test")))
	select {
	case <-b.Policy().Over():
		t.Error("the one in force is over")
	default:
	}
}
