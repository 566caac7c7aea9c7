package netns

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
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

// OpenStrays opens a socket on which the packets come that the rules of the calling
// thread's namespace refuse, and log. That takes CAP_NET_ADMIN in the user namespace which
// owns it.
// While the socket is open, wherever it is passed to, there can be no other. It is not
// for the poller of who opens it, whom each packet would wake.
func OpenStrays() (*os.File, error) { return openLogged(nflog.Refused) }

// openLogged opens a socket for the packets that are logged to groups. What does not fit
// into it is lost, and counted (nflog.Reader): that is no error of who reads.
func openLogged(groups ...nflog.Group) (*os.File, error) {
	f, err := openNetfilter("logged packets")
	if err != nil {
		return nil, err
	}
	if err := bindLogged(int(f.Fd()), groups); err != nil {
		return nil, errors.Join(fmt.Errorf("have packets logged (nfnetlink_log): %w", err), f.Close())
	}
	return f, nil
}

func openNetfilter(name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a socket for %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Overheard are sockets that tell of a namespace of the mode bridge. Each has room of its
// own, so that nothing that is told hides anything else.
type Overheard struct {
	Refused *os.File // packets that go nowhere
	Passed  *os.File // the first packet of each connection or exchange that leaves
	Ended   *os.File // connections and exchanges that the kernel forgets
}

// Close closes all that are open.
func (o *Overheard) Close() error {
	var errs []error
	for _, f := range []*os.File{o.Refused, o.Passed, o.Ended} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Overhear opens those of the namespace at path. Those of before must be closed.
func Overhear(path string) (o *Overheard, err error) {
	const op = "netns.overhear"
	ns, err := Open(path)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	err = ns.Do(func() error { o, err = OpenOverheard(); return err })
	return o, wrapInner(op, err)
}

// OpenOverheard opens those of the calling thread's namespace. That takes what OpenStrays
// does.
func OpenOverheard() (_ *Overheard, err error) {
	o := &Overheard{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if o.Refused, err = openLogged(nflog.Refused, nflog.Limited); err != nil {
		return nil, err
	}
	if o.Passed, err = openLogged(nflog.Passed); err != nil {
		return nil, err
	}
	if err = flowsAreTold(); err == nil {
		o.Ended, err = openEnded()
	}
	if err != nil {
		err = fmt.Errorf("have the kernel tell what it forgets: %w", err)
		return nil, sbxerr.WithRemedy(sbxerr.NetRule, "netns.overhear", err, "load the kernel module nf_conntrack_netlink")
	}
	return o, nil
}

// flowsAreTold asks the kernel how many flows there are: who only listens is not told that
// nobody ever speaks.
func flowsAreTold() error {
	const stats = unix.NFNL_SUBSYS_CTNETLINK<<8 | 5 // IPCTNL_MSG_CT_GET_STATS
	req := nl.NewNetlinkRequest(stats, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

// flowRoom is how many bytes may wait to be read: the end of a sandbox ends all its flows
// at once.
const flowRoom = 1 << 20

// openEnded opens a socket on which the ends of flows come. What finds no room is told
// later: the kernel does not forget a flow before (netlink(7), NETLINK_BROADCAST_ERROR).
func openEnded() (*os.File, error) {
	f, err := openNetfilter("ends of flows")
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, flowRoom),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_BROADCAST_ERROR, 1),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_CONNTRACK_DESTROY - 1)}))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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

// EndFlows lets nothing leave the namespace at path, of the mode bridge, any more, and has
// the kernel forget all its flows, and so tell how much they were. It returns when that is
// told, or is late because nobody reads. No program may run there: what the kernel would
// still send for those that did is lost.
func EndFlows(path string) error {
	const op = "netns.end_flows"
	ns, err := Open(path)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Network, op, err)
	}
	defer ns.Close()
	return wrapInner(op, ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer h.Close()
		if err := errors.Join(lower(h, innerLink), h.ConntrackTableFlush(netlink.ConntrackTable)); err != nil {
			return err
		}
		return untilForgotten()
	}))
}

// forgetTimeout is how long somebody has to read of ten thousands of flows. The kernel tries
// after a second again to tell of those for which there was no room.
const forgetTimeout = 3 * time.Second

// untilForgotten waits for the calling thread's namespace to know of no flow: what is still
// to be told of counts (nf_conntrack-sysctl of the kernel's documentation).
func untilForgotten() error {
	for deadline := time.Now().Add(forgetTimeout); ; time.Sleep(5 * time.Millisecond) {
		count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err != nil || strings.TrimSpace(string(count)) == "0" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s flows are not told of yet", strings.TrimSpace(string(count)))
		}
	}
}

// bindLogged makes the socket the one of groups.
func bindLogged(fd int, groups []nflog.Group) error {
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
