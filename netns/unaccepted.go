package netns

import (
	endian "encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sbxerr"
)

// Unaccepted is about how much memory, in bytes, the TCP connections take that wait in
// the namespace at path to be accepted. The kernel charges it to no cgroup.
func Unaccepted(path string) (bytes int64, err error) {
	const op = "netns.unaccepted"
	ns, err := Open(path)
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			n, err := unaccepted(family)
			if err != nil {
				return err
			}
			bytes += n
		}
		return nil
	})
	return bytes, sbxerr.Wrap(sbxerr.Network, op, err)
}

// States of TCP (include/net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpCloseWait   = 8
	tcpListen      = 10
)

// socketSize is about what a connection takes without the bytes that it received.
const socketSize = 4 << 10

// unaccepted looks at connections only where listeners say that some wait: to walk the
// few listeners costs a hundredth of the walk over all connections of the host.
func unaccepted(family uint8) (int64, error) {
	waiting := int64(0)
	err := diagnose(family, 1<<tcpListen, func(s diagnosed) { waiting += int64(s.queued) })
	if err != nil || waiting == 0 {
		return 0, err
	}
	bytes := int64(0)
	err = diagnose(family, 1<<tcpEstablished|1<<tcpCloseWait, func(s diagnosed) {
		if s.inode == 0 { // nobody has a descriptor of it
			bytes += socketSize + int64(s.received)
		}
	})
	return bytes, err
}

// diagnosed is what the kernel tells of a socket: for a listener queued is how many
// connections wait; received is the memory of what was not read.
type diagnosed struct{ queued, inode, received uint32 }

// The messages of linux/inet_diag.h.
const (
	diagRequestSize = 56 // inet_diag_req_v2: family, protocol, extensions, pad, states, id
	diagAnswerSize  = 72 // inet_diag_msg
	diagQueued      = 56 // its idiag_rqueue
	diagInode       = 68 // its idiag_inode
	diagMemory      = 7  // INET_DIAG_SKMEMINFO, of which SK_MEMINFO_RMEM_ALLOC is the first
)

// diagnose calls found for the TCP sockets of the calling thread's namespace (sock_diag(7)).
func diagnose(family uint8, states uint32, found func(diagnosed)) error {
	payload := make([]byte, diagRequestSize)
	payload[0], payload[1], payload[2] = family, unix.IPPROTO_TCP, 1<<(diagMemory-1)
	endian.NativeEndian.PutUint32(payload[4:], states)
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddRawData(payload)
	var bad error
	err := req.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(answer []byte) bool {
		var s diagnosed
		if s, bad = parseDiagnosed(answer); bad == nil {
			found(s)
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return fmt.Errorf("list TCP sockets: %w", err)
	}
	return nil
}

func parseDiagnosed(answer []byte) (s diagnosed, err error) {
	if len(answer) < diagAnswerSize {
		return s, fmt.Errorf("an answer of %d bytes is too short", len(answer))
	}
	s.queued = endian.NativeEndian.Uint32(answer[diagQueued:])
	s.inode = endian.NativeEndian.Uint32(answer[diagInode:])
	attrs, err := nl.ParseRouteAttr(answer[diagAnswerSize:])
	for _, a := range attrs {
		if a.Attr.Type == diagMemory && len(a.Value) >= 4 {
			s.received = endian.NativeEndian.Uint32(a.Value)
		}
	}
	return s, err
}
