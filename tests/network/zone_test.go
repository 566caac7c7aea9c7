package network

import (
	"fmt"
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
	fails map[string]dnsmessage.RCode
	asked []string
}

func newZone() *zone {
	z := &zone{fails: map[string]dnsmessage.RCode{}, names: map[string][]string{
		"web.example.": {public}, "api.web.example.": {public}, "bad.web.example.": {public}, "db.example.": {public},
		"other.example.": {elsewhere}, "inside.example.": {private}, "metadata.example.": {metadata}, "home.example.": {"127.0.0.1"},
	}}
	for i, addr := range metadataServices {
		z.names[fmt.Sprintf("metadata%d.example.", i)] = []string{addr}
	}
	return z
}

// set gives a name its answers.
func (z *zone) set(name string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names[name+"."] = addrs
}

// fail gives a name an answer that is none.
func (z *zone) fail(name string, by dnsmessage.RCode) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.fails[name+"."] = by
}

// address is the next answer for a name.
func (z *zone) address(name string) string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.names[name+"."][0]
}

// forget makes names unknown again.
func (z *zone) forget(names ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, name := range names {
		delete(z.names, name+".")
		delete(z.fails, name+".")
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
	failed, fails := z.fails[name]
	switch {
	case fails:
		m.RCode = failed
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case strings.Contains(addrs[0], ":"):
		m.Answers = answerV6(q, netip.MustParseAddr(addrs[0]))
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

// answerV6 answers for a name that has no IPv4 address.
func answerV6(q dnsmessage.Question, addr netip.Addr) []dnsmessage.Resource {
	if q.Type != dnsmessage.TypeAAAA {
		return nil
	}
	return []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
		Body:   &dnsmessage.AAAAResource{AAAA: addr.As16()},
	}}
}

// serveTCP answers one question of each connection.
func (z *zone) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		if answer, err := z.answer(buf[min(2, n):n]); err == nil {
			_, _ = c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
		}
		_ = c.Close()
	}
}
