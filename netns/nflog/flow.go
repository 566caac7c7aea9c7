package nflog

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// msgForgotten tells that the kernel forgot a connection or exchange (IPCTNL_MSG_CT_DELETE
// of linux/netfilter/nfnetlink_conntrack.h, which has the attributes below too).
const msgForgotten = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

const (
	ctTuple    = 1  // CTA_TUPLE_ORIG
	ctSent     = 9  // CTA_COUNTERS_ORIG
	ctReceived = 10 // CTA_COUNTERS_REPLY
	ctTimes    = 20 // CTA_TIMESTAMP

	tupleIP     = 1 // CTA_TUPLE_IP
	tupleProto  = 2 // CTA_TUPLE_PROTO
	ipTarget    = 2 // CTA_IP_V4_DST
	protoNumber = 1 // CTA_PROTO_NUM
	protoTarget = 3 // CTA_PROTO_DST_PORT
	countBytes  = 2 // CTA_COUNTERS_BYTES
	timeBegun   = 1 // CTA_TIMESTAMP_START
	timeEnded   = 2 // CTA_TIMESTAMP_STOP
)

// Flow is a connection or exchange by IPv4 that is over. What the kernel did not count is 0.
type Flow struct {
	Protocol       byte           // IPPROTO_TCP and others
	Destination    netip.AddrPort // without a port it is 0
	Sent, Received uint64         // bytes, those of IP's and all other headers included
	Begun, Ended   time.Time
}

// parseFlow reads one message, and reports whether it is about a flow of which it is known
// where it led.
func parseFlow(b []byte) (f Flow, ok bool) {
	data, ok := body(b, msgForgotten)
	if !ok {
		return Flow{}, false
	}
	for kind, value := range attributes(data[4:]) {
		switch kind {
		case ctTuple:
			f.readTuple(value)
		case ctSent:
			f.Sent = number(value, countBytes)
		case ctReceived:
			f.Received = number(value, countBytes)
		case ctTimes:
			f.Begun, f.Ended = at(number(value, timeBegun)), at(number(value, timeEnded))
		}
	}
	return f, f.Destination.IsValid()
}

// readTuple takes where a flow led.
func (f *Flow) readTuple(b []byte) {
	var to netip.Addr
	var port uint16
	for part, nested := range attributes(b) {
		for kind, value := range attributes(nested) {
			switch {
			case part == tupleIP && kind == ipTarget && len(value) == 4:
				to, _ = netip.AddrFromSlice(value)
			case part == tupleProto && kind == protoNumber && len(value) == 1:
				f.Protocol = value[0]
			case part == tupleProto && kind == protoTarget && len(value) == 2:
				port = binary.BigEndian.Uint16(value)
			}
		}
	}
	f.Destination = netip.AddrPortFrom(to, port)
}

// number is that of one kind among the attributes in b, 0 if it is not there.
func number(b []byte, wanted uint16) uint64 {
	for kind, value := range attributes(b) {
		if kind == wanted && len(value) == 8 {
			return binary.BigEndian.Uint64(value)
		}
	}
	return 0
}

// at is a time that the kernel keeps in nanoseconds.
func at(ns uint64) time.Time {
	if ns == 0 || ns > 1<<62 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns))
}
