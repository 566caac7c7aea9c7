package netns

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns/nflog"
)

// Of linux/netfilter/nfnetlink_log.h.
const (
	msgConfig = unix.NFNL_SUBSYS_ULOG<<8 | 1 // NFULNL_MSG_CONFIG

	cfgCmd     = 1 // NFULA_CFG_CMD
	cfgMode    = 2 // NFULA_CFG_MODE
	cfgBufSize = 3 // NFULA_CFG_NLBUFSIZ
	cfgQThresh = 5 // NFULA_CFG_QTHRESH

	cmdBind    = 1 // NFULNL_CFG_CMD_BIND
	copyPacket = 2 // NFULNL_COPY_PACKET
)

// snap is how much of a packet is passed on, in bytes: the longest header of IPv4, with
// options that anybody may set (ip(7), IP_OPTIONS), and of TCP up to the flags.
const snap = 60 + 14

// messageSize is the room for one message. Without it each takes that of a page, and the
// socket holds few.
const messageSize = 256

// OpenDropLog opens a socket on which the packets come that the rules of the calling thread's
// namespace refuse. That takes CAP_NET_ADMIN in the user namespace which owns it.
//
// A packet for which the socket has no room is counted (nflog.Reader). While the socket is
// open, wherever it is passed to, there can be no other. It is not for the poller of the
// process that opens it, which each packet would wake.
func OpenDropLog() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a socket for refused packets: %w", err)
	}
	f := os.NewFile(uintptr(fd), "drop log")
	if err := bindLogged(fd, nflog.Refused, nflog.Limited); err != nil {
		return nil, errors.Join(fmt.Errorf("have packets logged (nfnetlink_log): %w", err), f.Close())
	}
	return f, nil
}

// DropLog is OpenDropLog in the namespace at path.
func DropLog(path string) (log *os.File, err error) {
	const op = "netns.drop_log"
	ns, err := Open(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	err = ns.Do(func() error { log, err = OpenDropLog(); return err })
	return log, wrapInner(op, err)
}

// onlyAnswers is a filter (socket(7), SO_ATTACH_FILTER) that passes the kernel's answers
// to requests.
func onlyAnswers() []unix.SockFilter {
	kind := nl.NativeEndian().Uint16(nl.BEUint16Attr(unix.NLMSG_ERROR)) // a filter loads it as if it were big endian
	const done = unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // the type
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(kind), Jf: 1},
		{Code: done, K: ^uint32(0)},
		{Code: done, K: 0},
	}
}

// bindLogged makes the socket the one of groups.
func bindLogged(fd int, groups ...nflog.Group) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return err
	}
	answers := onlyAnswers() // packets would take the room
	program := unix.SockFprog{Len: uint16(len(answers)), Filter: &answers[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return err
	}
	for _, group := range groups {
		if err := unix.Sendto(fd, loggedRequest(group).Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		if err := acknowledged(fd); err != nil {
			return err
		}
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

// loggedRequest asks for each packet of the group by itself.
func loggedRequest(group nflog.Group) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(msgConfig, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, ResId: nl.NativeEndian().Uint16(nl.BEUint16Attr(uint16(group)))})
	req.AddData(nl.NewRtAttr(cfgCmd, []byte{cmdBind}))
	req.AddData(nl.NewRtAttr(cfgMode, append(nl.BEUint32Attr(snap), copyPacket, 0)))
	req.AddData(nl.NewRtAttr(cfgBufSize, nl.BEUint32Attr(messageSize)))
	req.AddData(nl.NewRtAttr(cfgQThresh, nl.BEUint32Attr(1)))
	return req
}

// acknowledged reads the answer, which is there when the request is sent, and alone.
func acknowledged(fd int) error {
	var buf [512]byte
	n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
	if err != nil {
		return fmt.Errorf("read the kernel's answer: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(buf[:n])
	if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return cmp.Or(err, errors.New("the kernel's answer is none"))
	}
	if errno := -int32(nl.NativeEndian().Uint32(messages[0].Data)); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}
