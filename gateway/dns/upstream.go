package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// Resolver finds what a name leads to. Its errors have code
// sbxerr.EgressResolve; ErrNoName and ErrNoAddress are among their causes where
// that is the answer.
type Resolver interface {
	Resolve(ctx context.Context, name policy.Name) (policy.Resolution, error)
}

// What an upstream may say instead of addresses.
var (
	ErrNoName    = errors.New("there is no such name")
	ErrNoAddress = errors.New("the name has no address")
)

// The bounds of one resolution.
const (
	resolveTimeout = 6 * time.Second
	tryTimeout     = 2 * time.Second // of one question to one server
	rounds         = 2               // over all servers
	graceAAAA      = 200 * time.Millisecond
	udpSize        = 1232 // never fragmented (DNS flag day 2020)
	answerSize     = 4096 // that is taken over UDP: some servers send more than they may
)

// Upstream asks recursive resolvers, in order, over UDP and over TCP where an
// answer does not fit, as the C libraries do. Answers are kept for as long as they say, within bounds.
// Each sandbox has its Share.
type Upstream struct {
	servers []netip.AddrPort
	cache   *cache
}

// NewUpstream makes an Upstream that asks servers.
func NewUpstream(servers []netip.AddrPort) (*Upstream, error) {
	if len(servers) == 0 {
		return nil, sbxerr.WithRemedy(sbxerr.EgressResolve, "dns.upstream", errors.New("there is no upstream resolver"),
			"name one in the configuration, or a nameserver in the host's /etc/resolv.conf")
	}
	for _, s := range servers {
		if !s.IsValid() || s.Port() == 0 {
			return nil, sbxerr.New(sbxerr.EgressResolve, "dns.upstream", "the upstream resolver %q is not ADDRESS:PORT", s)
		}
	}
	return &Upstream{servers: servers, cache: newCache(time.Now)}, nil
}

// resolve asks for both families at once. It does not wait long for IPv6 when
// there are IPv4 addresses: some resolvers never answer for AAAA. The
// sockets of both are closed when both is done, which may be soon after ctx has ended.
func (u *Upstream) resolve(ctx context.Context, name policy.Name, both *sync.WaitGroup) found {
	a, aaaa := make(chan found, 1), make(chan found, 1)
	both.Go(func() { a <- u.lookup(ctx, name, miekg.TypeA) })
	both.Go(func() { aaaa <- u.lookup(ctx, name, miekg.TypeAAAA) })
	v4 := <-a
	if v4.err != nil {
		return merge(v4, <-aaaa)
	}
	select {
	case v6 := <-aaaa:
		return merge(v4, v6)
	case <-time.After(graceAAAA):
		return v4
	}
}

// merge makes one of what was found for both families.
func merge(v4, v6 found) found {
	switch {
	case v4.err == nil && v6.err == nil:
		return found{addresses: append(v4.addresses, v6.addresses...), aliases: append(v4.aliases, v6.aliases...), ttl: min(v4.ttl, v6.ttl)}
	case v6.err == nil:
		return v6
	case v4.err == nil:
		return v4
	case errors.Is(v4.err, ErrNoAddress) && !errors.Is(v6.err, ErrNoName):
		return v6 // either there is no address at all, or nobody knows
	}
	return v4
}

// lookup asks one server after the other until one gives an answer.
func (u *Upstream) lookup(ctx context.Context, name policy.Name, qtype uint16) found {
	var errs []error
	for range rounds {
		for _, server := range u.servers {
			answer, err := ask(ctx, server, name, qtype)
			if err == nil {
				return answer
			}
			errs = append(errs, fmt.Errorf("ask %s: %w", server, err))
			if ctx.Err() != nil {
				return found{err: errors.Join(errs...)}
			}
		}
	}
	return found{err: errors.Join(errs...)}
}

// ways are how a server is asked, one after the other while answers do not fit. Some servers
// refuse questions with EDNS, or never answer them, so that comes last: for those that
// answer over UDP alone.
var ways = []struct {
	network string
	edns    bool
}{{"udp", false}, {"tcp", false}, {"udp", true}}

// ask puts one question to one server: from a port and with an id of its own,
// both random, on a socket that only this server can answer to. The error is
// nil if the server answered, even if with ErrNoName.
func ask(ctx context.Context, server netip.AddrPort, name policy.Name, qtype uint16) (answer found, err error) {
	for _, way := range ways {
		q := new(miekg.Msg).SetQuestion(string(name)+".", qtype)
		if way.edns {
			q.SetEdns0(udpSize, false)
		}
		r, failed := exchange(ctx, way.network, server, q)
		if failed == nil {
			answer, err = read(q, r)
		} else {
			err = errors.Join(err, failed)
		}
		if !errors.Is(err, errTruncated) {
			break
		}
	}
	return answer, err
}

// exchange sends q and waits for what comes back, at most until ctx ends: the library
// looks at the deadline of a context, not at its end.
func exchange(ctx context.Context, network string, server netip.AddrPort, q *miekg.Msg) (*miekg.Msg, error) {
	client := miekg.Client{Net: network, Timeout: tryTimeout, UDPSize: answerSize}
	conn, err := client.DialContext(ctx, server.String())
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // a deadline is set anew
	defer stop()
	r, _, err := client.ExchangeWithConnContext(ctx, q, conn)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return r, nil
}
