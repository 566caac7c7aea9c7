package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/tests/cost/bound"
)

// header is that of a message with so many records.
func header(flags, questions, answers, additional int) (b []byte) {
	for _, n := range []int{1, flags, questions, answers, 0, additional} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return b
}

// labels is the longest name.
var labels = append(bytes.Repeat([]byte{1, 'a'}, 126), 0)

// asked is a question for the longest name.
func asked(kind uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(bytes.Clone(labels), kind), miekg.ClassINET)
}

// record is one whose name is a pointer to the question's.
func record(kind uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xc0, 12}, kind)
	b = append(b, 0, 1, 0, 0, 0, 9)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

// filled is b with as many of part as fit into a message.
func filled(b, part []byte) []byte {
	return append(b, bytes.Repeat(part, (miekg.MaxMsgSize-len(b)-16)/len(part))...)
}

type instant struct{}

func (instant) Resolve(context.Context, policy.Name) (policy.Resolution, error) {
	return policy.Resolution{Addresses: []netip.Addr{netip.MustParseAddr("9.9.9.9")}}, nil
}

// TestCost: no message costs more than a request may, neither a question of a sandbox nor an
// answer of a server.
func TestCost(t *testing.T) {
	p, err := policy.Compile(policy.Spec{Mode: policy.Allow, Allow: []string{"a.test"}})
	if err != nil {
		t.Fatal(err)
	}
	limits := DefaultLimits
	limits.PerSecond, limits.Burst = 1<<30, 1<<30
	options := filled(append(append(header(0x100, 1, 0, 1), asked(miekg.TypeA)...), 0, 0, 41, 16, 0, 0, 0, 0, 0, 0xff, 0), []byte{0, 10, 0, 0})
	binary.BigEndian.PutUint16(options[len(header(0, 0, 0, 0))+len(asked(0))+9:], uint16(len(options)-len(header(0, 0, 0, 0))-len(asked(0))-11))
	pointers := append(header(0x100, 1, 0, 0), bytes.Repeat([]byte{0xc0, 14}, 30_000)...)
	for name, b := range map[string][]byte{
		"longest name":     append(header(0x100, 1, 0, 0), asked(miekg.TypeA)...),
		"many options":     options,
		"pointers":         pointers,
		"many questions":   filled(header(0x100, 0xffff, 0, 0), asked(miekg.TypeA)),
		"promised records": append(header(0x100, 1, 0xffff, 0xffff), asked(miekg.TypeA)...),
	} {
		t.Run("question/"+name, func(t *testing.T) {
			bound.Check(t, len(b), func() {
				m := new(miekg.Msg)
				if m.Unpack(b) != nil {
					return
				}
				s := newServer(t.Context(), Config{Policy: func() *policy.Policy { return p }, Pool: newPool(t, 10, nil), Resolver: instant{}, Limits: limits})
				s.ServeDNS(&writer{network: &net.TCPAddr{}}, m)
			})
		})
	}
	q := new(miekg.Msg).SetQuestion("a.a.", miekg.TypeA)
	answers := func(part []byte) []byte {
		return filled(append(header(0x8180, 1, 5000, 0), asked(miekg.TypeA)...), part)
	}
	for name, b := range map[string][]byte{
		"many addresses": answers(record(miekg.TypeA, []byte{9, 9, 9, 9})),
		"many aliases":   answers(record(miekg.TypeCNAME, []byte{0xc0, 12})),
		"long aliases":   answers(record(miekg.TypeCNAME, labels)),
		"many texts":     answers(record(miekg.TypeTXT, make([]byte, 60))),
		"many services":  answers(record(miekg.TypeNSEC, append([]byte{0xc0, 12}, 0, 32, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255))),
	} {
		t.Run("answer/"+name, func(t *testing.T) {
			bound.Check(t, len(b), func() {
				r := new(miekg.Msg)
				if r.Unpack(b) != nil {
					return
				}
				q := q.Copy()
				q.Question = r.Question
				q.Id = r.Id
				_, _ = read(q, r) // it may be no answer
			})
		})
	}
}
