package control

import (
	"net/netip"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/upstream"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Op is what a Request asks for.
type Op string

// The operations.
const (
	Configure Op = "configure"
	Add       Op = "add"
	Watch     Op = "watch"
	SetPolicy Op = "policy"
	SetBill   Op = "bill"
	Publish   Op = "publish"
	Admit     Op = "admit" // other clients at published ports; what others have open is cut
	Supply    Op = "supply"
	Secrets   Op = "secrets"    // all there are: those whose values come from descriptors, and Kept
	TrySecret Op = "try secret" // whether a descriptor has the value of one, of which nothing is kept
	Settle    Op = "settle"
	Remove    Op = "remove"
	Ping      Op = "ping"
)

// Files is how many descriptors come with r. Those of Add are, in this order,
// the TCP listener, the DNS socket, the DNS listener and the drop log;
// that of Watch is the drop log; those of Publish a listener for each of Ports; those of
// Secrets and TrySecret are read to their ends, and must not keep the reader waiting.
func (r Request) Files() int {
	switch r.Op {
	case Add:
		return 4
	case Watch:
		return 1
	case Secrets, TrySecret:
		return len(r.Secrets)
	case Publish:
		return len(r.Ports)
	case Supply:
		return r.Sockets
	}
	return 0
}

// Request is what the daemon asks of the gateway.
type Request struct {
	Seq     uint64 // of the Answer as well; never 0
	Op      Op
	Sandbox string                     `json:",omitempty"` // of all but Configure, Ping, Secrets and TrySecret; Settle without it is about all
	Policy  policy.Spec                `json:",omitzero"`  // of Add and SetPolicy
	Names   map[policy.Name]netip.Addr `json:",omitempty"` // of Add: given before
	Servers []netip.AddrPort           `json:",omitempty"` // of Configure
	Proxy   *Proxy                     `json:",omitempty"` // of Configure: nil is none
	Ports   []uint16                   `json:",omitempty"` // of Publish: inside, of the listeners
	Clients [][]netip.Prefix           `json:",omitempty"` // of Publish and Admit: that may connect to each port; absent is any to all
	Exposed []uint16                   `json:",omitempty"` // of Publish: to which links may lead
	Sockets int                        `json:",omitempty"` // of Supply: how many come
	Secrets []string                   `json:",omitempty"` // of Secrets and TrySecret: their names
	Kept    []string                   `json:",omitempty"` // of Secrets: names of others that stay
	Bill    budget.Bill                `json:",omitzero"`  // of Add and SetBill
	Spent   []budget.Entry             `json:",omitempty"` // of Add and SetBill: what its accounts came to before
}

// Proxy is an upstream.Spec as it travels.
type Proxy struct {
	URL         string
	Except      []string `json:",omitempty"`
	Credentials string   `json:",omitempty"` // in the clear: nobody but the gateway has the other end
}

// ProxyOf makes what travels of u; nil stays nil.
func ProxyOf(u *upstream.Proxy) *Proxy {
	if u == nil {
		return nil
	}
	s := u.Spec()
	return &Proxy{URL: s.URL, Except: s.Except, Credentials: s.Credentials.Reveal()}
}

// Compile is upstream.Compile of what arrived; nil is no proxy.
func (p *Proxy) Compile() (*upstream.Proxy, error) {
	if p == nil {
		return nil, nil
	}
	return upstream.Compile(upstream.Spec{URL: p.URL, Except: p.Except, Credentials: upstream.NewSecret(p.Credentials)})
}

// Report is what the gateway says. Exactly one field but Lost is set.
type Report struct {
	Confined bool             `json:",omitempty"` // it gave up all rights; the first report
	Answer   *Answer          `json:",omitempty"`
	Attempt  *attempt.Attempt `json:",omitempty"`
	Query    *lookup.Query    `json:",omitempty"`
	Named    *Named           `json:",omitempty"`
	Arrival  *attempt.Arrival `json:",omitempty"`
	Use      *usage.Use       `json:",omitempty"`
	Need     *Need            `json:",omitempty"`
	Open     *Open            `json:",omitempty"`
	Inbound  *Inbound         `json:",omitempty"`
	Broken   *Broken          `json:",omitempty"`
	Spent    []budget.Entry   `json:",omitempty"` // accounts that changed

	// Lost counts attempts, queries, arrivals and uses of the same sandbox before this one that
	// were dropped because the daemon did not read.
	Lost uint64 `json:",omitempty"`
}

// Answer says what became of a request. An empty Code is success.
type Answer struct {
	Seq     uint64
	Code    sbxerr.Code `json:",omitempty"`
	Message string      `json:",omitempty"`
	Remedy  string      `json:",omitempty"`
}

// Named says that a sandbox uses a name, by an address that it keeps.
type Named struct {
	Sandbox string
	Name    policy.Name
	Address netip.Addr
}

// Need says that a sandbox with published ports is short of sockets.
type Need struct{ Sandbox string }

// Open says how many connections a sandbox has. It is told before the answer to
// Ping and Settle if it changed.
type Open struct {
	Sandbox     string
	Connections int
}

// Inbound says how many connections from outside, and by links, a published sandbox has. The
// first one is told when it comes, the rest as with Open.
type Inbound struct {
	Sandbox     string
	Connections int
}

// MaxSpent is how many accounts a report may have.
const MaxSpent = 64

// Broken says that the gateway can serve a sandbox no more. Nothing of it gets
// out any longer.
type Broken struct {
	Sandbox string
	Reason  string
}

// Answered makes the Answer to request seq of err.
func Answered(seq uint64, err error) *Answer {
	if err == nil {
		return &Answer{Seq: seq}
	}
	return &Answer{Seq: seq, Code: sbxerr.Of(err), Message: clean(err.Error(), maxText), Remedy: clean(sbxerr.RemedyOf(err), maxText)}
}

// Err is the error that a was made of, or nil.
func (a *Answer) Err() error {
	if a.Code == "" {
		return nil
	}
	return sbxerr.WithRemedy(a.Code, "gateway.answer", message(a.Message), a.Remedy)
}

// message is an error of another process.
type message string

func (m message) Error() string { return string(m) }
