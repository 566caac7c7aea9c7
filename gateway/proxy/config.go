package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Names knows what an address of the sandbox's pool means.
type Names interface {
	Name(netip.Addr) (policy.Name, bool)
}

// Resolver finds what a name leads to. Its errors carry a code.
type Resolver interface {
	Resolve(context.Context, policy.Name) (policy.Resolution, error)
}

// Dialer connects to ADDRESS:PORT, which is never a name.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Origin says where a connection was meant to go before it was led here.
type Origin func(*net.TCPConn) (netip.AddrPort, error)

// Linker connects to a port of another sandbox. Its errors carry a code. The function
// is called when the connection is over.
type Linker func(context.Context, policy.Link) (*net.TCPConn, func(), error)

// Routes serves what leads to routes.
type Routes interface {
	// Serve takes over c, which a client made to a route.
	Serve(c net.Conn, at policy.Place)
}

// Recorder is told of each attempt when it is over. It must not block.
type Recorder interface {
	Record(attempt.Attempt)
}

// Config is the proxy of one sandbox.
type Config struct {
	Sandbox  string // for records
	Names    Names
	Resolver Resolver
	Local    policy.Local // what this process would meet its own host by
	Recorder Recorder     // nil: nobody looks
	// Requests is told of each request by plain HTTP that a server gets, when it is over. It must not
	// block; nil: nobody looks.
	Requests func(usage.Use)
	Limits   Limits

	Upstream *upstream.Proxy // nil: this process connects to all destinations itself

	Link   Linker // nil: no link leads anywhere
	Routes Routes // nil: no route leads anywhere
	Origin Origin // nil: OriginalDestination
	Dialer Dialer // nil: the network of this process
}

// Limits bound one sandbox. Zero is an error and never means unlimited.
type Limits struct {
	Connections  int           // at once
	NewPerSecond int           // sustained
	NewBurst     int           // at once
	Peek         time.Duration // for the first bytes on ports 80 and 443
	Connect      time.Duration // to all addresses of a name together, after it was resolved
	Resolve      time.Duration
	Idle         time.Duration // without a byte either way
}

// DefaultLimits let package managers and test suites work.
var DefaultLimits = Limits{
	Connections: 1024, NewPerSecond: 200, NewBurst: 1024,
	Peek: 10 * time.Second, Connect: 10 * time.Second, Resolve: 6 * time.Second, Idle: 30 * time.Minute,
}

// validate reports all limits that are absent.
func (l Limits) validate() error {
	var errs []error
	for _, b := range []struct {
		name  string
		value int64
	}{
		{"connections", int64(l.Connections)}, {"new connections per second", int64(l.NewPerSecond)}, {"burst of new connections", int64(l.NewBurst)},
		{"time for the first bytes", int64(l.Peek)}, {"time to connect", int64(l.Connect)}, {"time to resolve", int64(l.Resolve)}, {"idle time", int64(l.Idle)},
	} {
		if b.value <= 0 {
			errs = append(errs, fmt.Errorf("the limit of %s is %d, which never means unlimited", b.name, b.value))
		}
	}
	return errors.Join(errs...)
}

// complete checks c and fills in what has a default.
func (c Config) complete() (Config, error) {
	if c.Names == nil || c.Resolver == nil || c.Local == nil {
		return c, sbxerr.New(sbxerr.Internal, "proxy.new", "a proxy without names, a resolver, or who knows the host's addresses")
	}
	if c.Origin == nil {
		c.Origin = OriginalDestination
	}
	if c.Dialer == nil {
		c.Dialer = &net.Dialer{KeepAlive: 30 * time.Second}
	}
	return c, sbxerr.Wrap(sbxerr.Internal, "proxy.new", c.Limits.validate())
}
