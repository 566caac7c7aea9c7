package netns

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// digest stands for all rules of a namespace. To read it takes 0.3 ms, and to list the
// rules 20: so the rules are listed once, and compared by this from then on.
type digest [sha256.Size]byte

// readDigest sums up the rules of the calling thread's namespace: of nft and legacy, of
// every family. It leaves out counters, and the numbers that the kernel gives to objects; own
// counts only by its place. Sets and flow tables of nft do nothing without a rule.
func readDigest(use tablesInUse, own netip.Addr) (d digest, err error) {
	sum := ruleSum{sha256.New(), own.AsSlice()}
	if err := sumNFT(sum); err != nil {
		return d, err
	}
	for _, f := range slices.Sorted(maps.Keys(legacySockets)) {
		for _, table := range slices.Sorted(slices.Values(strings.Fields(use.legacy[f]))) {
			if err := legacySockets[f].sum(sum, table); err != nil {
				return d, fmt.Errorf("read the legacy table %q of %s: %w", table, f, err)
			}
		}
	}
	return digest(sum.Sum(nil)), nil
}

// checked are the digests of namespaces whose rules were listed, each with the rules that they
// were compared with.
var checked sync.Map

// of is d, and the rules that were wanted of a namespace with the address own.
func (d digest) of(want func(family) []table, own netip.Addr) digest {
	sum := sha256.New()
	sum.Write(d[:]) // a hash returns no error
	for _, f := range []family{familyV4, familyV6} {
		for _, line := range describeRules(f, want(f)) {
			fmt.Fprintln(sum, strings.ReplaceAll(line, own.String()+"/32", "OWN"))
		}
	}
	return digest(sum.Sum(nil))
}

func (d digest) isChecked() bool {
	_, is := checked.Load(d)
	return is
}

// nftObject is a table, chain or rule of nft.
type nftObject struct {
	family     uint8
	attributes map[uint16][]byte // NFTA_*
}

const nftaTableHandle = 4 // linux/netfilter/nf_tables.h

// nftDumps are the kinds of objects, each with the attributes that vary: handles, and how
// often the object is used.
var nftDumps = []struct {
	request int
	varying []uint16
}{
	{unix.NFT_MSG_GETTABLE, []uint16{unix.NFTA_TABLE_USE, nftaTableHandle}},
	{unix.NFT_MSG_GETCHAIN, []uint16{unix.NFTA_CHAIN_HANDLE, unix.NFTA_CHAIN_USE, unix.NFTA_CHAIN_COUNTERS}},
	{unix.NFT_MSG_GETRULE, []uint16{unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_POSITION}},
}

// sumNFT sums up the objects of each family in their order: that of different families is
// another each time that they are programmed.
func sumNFT(sum ruleSum) error {
	for _, dump := range nftDumps {
		objects, err := dumpNFT(dump.request)
		if err != nil {
			return err
		}
		slices.SortStableFunc(objects, func(a, b nftObject) int { return cmp.Compare(a.family, b.family) })
		for _, o := range objects {
			sum.field([]byte{byte(dump.request), o.family})
			for _, a := range slices.Sorted(maps.Keys(o.attributes)) {
				value := o.attributes[a]
				if slices.Contains(dump.varying, a) {
					continue
				}
				if dump.request == unix.NFT_MSG_GETRULE && a == unix.NFTA_RULE_EXPRESSIONS {
					if err := clearCounters(value); err != nil {
						return err
					}
				}
				sum.field(nl.Uint16Attr(a))
				sum.field(value)
			}
		}
	}
	return nil
}

// ruleSum sums up fields of rules.
type ruleSum struct {
	hash.Hash
	own []byte // the address of the sandbox, in whose place any other may be; empty: none
}

// field writes the number of parts around own, and the length of each before it, so that no
// two lists of fields are the same.
func (s ruleSum) field(field []byte) {
	parts := [][]byte{field}
	if len(s.own) > 0 {
		parts = bytes.Split(field, s.own)
	}
	s.number(len(parts))
	for _, part := range parts {
		s.number(len(part))
		s.Write(part)
	}
}

func (s ruleSum) number(n int) { s.Write(binary.NativeEndian.AppendUint64(nil, uint64(n))) }

// clearCounters clears the values of the counters in a list of expressions.
func clearCounters(expressions []byte) error {
	list, err := nl.ParseRouteAttr(expressions)
	if err != nil {
		return err
	}
	for _, element := range list {
		parts, err := nl.ParseRouteAttrAsMap(element.Value)
		if err != nil {
			return err
		}
		if string(bytes.TrimRight(parts[unix.NFTA_EXPR_NAME].Value, "\x00")) == "counter" {
			for kind, part := range parts {
				if kind&nl.NLA_TYPE_MASK == unix.NFTA_EXPR_DATA {
					clear(part.Value) // a part of expressions
				}
			}
		}
	}
	return nil
}

// dumpNFT lists objects of all families. A kernel without nft does not know the
// question.
func dumpNFT(request int) (objects []nftObject, err error) {
	answers, err := whole(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|request, unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
		return req.Execute(unix.NETLINK_NETFILTER, 0)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list rules of nft: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofNfgenmsg {
			return nil, errors.New("list rules of nft: an answer is cut short")
		}
		attributes, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, fmt.Errorf("list rules of nft: %w", err)
		}
		o := nftObject{answer[0], map[uint16][]byte{}}
		for _, a := range attributes {
			o.attributes[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// legacySocket is where the kernel tells of legacy tables (linux/netfilter_ipv4/ip_tables.h,
// linux/netfilter_ipv6/ip6_tables.h).
type legacySocket struct {
	domain, level int
	header        int // bytes of an entry before its target_offset and next_offset
}

var legacySockets = map[family]legacySocket{
	familyV4: {unix.AF_INET, unix.IPPROTO_IP, 88},
	familyV6: {unix.AF_INET6, unix.IPPROTO_IPV6, 140},
}

const (
	legacyInfo    = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	legacyEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES
	tableName     = 32 // XT_TABLE_MAXNAMELEN
	infoSize      = tableName + 13*4
)

// sum writes the entries of a table, the counters left out.
func (l legacySocket) sum(sum ruleSum, table string) error {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info := make([]byte, infoSize)
	copy(info, table)
	if err := l.get(fd, legacyInfo, info); err != nil {
		return err
	}
	size := binary.NativeEndian.Uint32(info[infoSize-4:])
	entries := make([]byte, tableName+8+size) // aligned for counters
	copy(entries, table)
	binary.NativeEndian.PutUint32(entries[tableName:], size)
	if err := l.get(fd, legacyEntries, entries); err != nil {
		return err
	}
	sum.field([]byte{byte(l.domain)})
	sum.field(info)
	for rest := entries[tableName+8:]; len(rest) > 0; {
		counters := l.header + 8 // after next_offset and comefrom
		if len(rest) < counters+16 {
			return errors.New("an entry is cut short")
		}
		next := int(binary.NativeEndian.Uint16(rest[l.header+2:]))
		if next < counters+16 || next > len(rest) {
			return errors.New("an entry has no length")
		}
		clear(rest[counters : counters+16])
		sum.field(rest[:next])
		rest = rest[next:]
	}
	return nil
}

// get is getsockopt(2) for a structure that also says which one is asked for.
func (l legacySocket) get(fd, option int, into []byte) error {
	size := uint32(len(into))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(l.level), uintptr(option),
		uintptr(unsafe.Pointer(&into[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
