package network

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is a resolver that knows the names of the world, and remembers what it was
// asked.
type zone struct {
	mu    sync.Mutex
	names map[string][]string // the next answer is the first address, which then goes, but for the last
	asked []string
}

func newZone() *zone {
	return &zone{names: map[string][]string{
		"web.example.": {public}, "api.web.example.": {public}, "bad.web.example.": {public}, "db.example.": {public},
		"other.example.": {elsewhere}, "inside.example.": {private}, "metadata.example.": {metadata}, "home.example.": {"127.0.0.1"},
	}}
}

// set gives a name its answers.
func (z *zone) set(name string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names[name+"."] = addrs
}

// forget makes names unknown again.
func (z *zone) forget(names ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, name := range names {
		delete(z.names, name+".")
	}
}

// questions lists what was asked since the last call.
func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	asked := z.asked
	z.asked = nil
	return asked
}

func (z *zone) serve(p net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := z.answer(buf[:n]); err == nil {
			_, _ = p.WriteTo(answer, from)
		}
	}
}

func (z *zone) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	m.Response, m.RecursionAvailable, m.Additionals, m.Answers = true, true, nil, nil
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked = append(z.asked, name)
	addrs, known := z.names[name]
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		a := netip.MustParseAddr(addrs[0]).As4()
		if len(addrs) > 1 {
			z.names[name] = addrs[1:]
		}
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, // a TTL of 0
			Body:   &dnsmessage.AResource{A: a},
		}}
	}
	return m.Pack()
}
