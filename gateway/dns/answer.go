package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/gateway/policy"
)

// The bounds of what is believed of one answer.
const (
	maxAddresses = 16
	maxAliases   = 16
)

// found is what is known of a name.
type found struct {
	addresses []netip.Addr
	aliases   []policy.Name // the names between the one that was asked for and that of the addresses
	ttl       time.Duration
	err       error // ErrNoName or ErrNoAddress, or why nobody could say
}

// read takes from r what answers q and nothing else. An error is a server that
// gave no answer; the next one may.
func read(q, r *miekg.Msg) (found, error) {
	if err := belongs(q, r); err != nil {
		return found{}, err
	}
	switch r.Rcode {
	case miekg.RcodeNameError:
		return found{err: ErrNoName}, nil
	case miekg.RcodeSuccess:
		return follow(r.Answer, q.Question[0])
	}
	return found{}, fmt.Errorf("it answers %s", miekg.RcodeToString[r.Rcode])
}

var errTruncated = errors.New("its answer is truncated")

// belongs checks that r is an answer to q. The id and the sender were checked
// when it was received.
func belongs(q, r *miekg.Msg) error {
	switch {
	case !r.Response || r.Opcode != miekg.OpcodeQuery || r.Id != q.Id:
		return errors.New("what it sent is no answer")
	case r.Truncated:
		return errTruncated
	case len(r.Question) != 1 || !strings.EqualFold(r.Question[0].Name, q.Question[0].Name),
		r.Question[0].Qtype != q.Question[0].Qtype, r.Question[0].Qclass != q.Question[0].Qclass:
		return errors.New("its answer is to another question")
	}
	return nil
}

// follow goes from the name that was asked for along its aliases to addresses.
// Records of other names are not looked at.
func follow(records []miekg.RR, q miekg.Question) (found, error) {
	owner := q.Name
	var aliases []policy.Name
	ttl := uint32(1<<31 - 1)
	for range maxAliases {
		addresses, next := at(records, owner, q.Qtype, &ttl)
		if len(addresses) > 0 {
			return found{addresses: addresses, aliases: aliases, ttl: time.Duration(ttl) * time.Second}, nil
		}
		if next == "" {
			return found{err: ErrNoAddress}, nil
		}
		owner = next
		if name, err := policy.ParseWireName(strings.TrimSuffix(next, ".")); err == nil { // no rule is about any other
			aliases = append(aliases, name)
		}
	}
	return found{}, errors.New("its answer has too many aliases")
}

// at returns what records say of owner: addresses, or the name that it is an
// alias of. ttl is lowered to the least of what counts, in seconds.
func at(records []miekg.RR, owner string, qtype uint16, ttl *uint32) (addresses []netip.Addr, alias string) {
	for _, rr := range records {
		h := rr.Header()
		if h.Class != miekg.ClassINET || !strings.EqualFold(h.Name, owner) {
			continue
		}
		addr, ok := address(rr, qtype)
		cname, isAlias := rr.(*miekg.CNAME)
		switch {
		case ok && len(addresses) < maxAddresses && !slices.Contains(addresses, addr):
			addresses = append(addresses, addr)
		case isAlias:
			alias = cname.Target
		default:
			continue
		}
		*ttl = min(*ttl, h.Ttl)
	}
	return addresses, alias
}

// address is the address in rr if it is of the type that was asked for. What
// an IPv4-mapped address in AAAA is good for, the policy says.
func address(rr miekg.RR, qtype uint16) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *miekg.A:
		addr, ok := netip.AddrFromSlice(rr.A.To4())
		return addr, ok && qtype == miekg.TypeA
	case *miekg.AAAA:
		addr, ok := netip.AddrFromSlice(rr.AAAA.To16())
		return addr, ok && qtype == miekg.TypeAAAA
	}
	return netip.Addr{}, false
}
