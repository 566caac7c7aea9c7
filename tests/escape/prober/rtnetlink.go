package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// noIndex is the index of a link that does not exist. The kernel asks for the right to
// change something before it looks at the rest of a message (rtnetlink_rcv_msg,
// net/core/rtnetlink.c), so that a control changes nothing.
const noIndex = 0x7ffffff0

// rtnetlinkProbes: a sandbox may ask about its own network, and change nothing.
func rtnetlinkProbes() []probe {
	return []probe{
		{id: "P029", name: "links that netlink tells", try: links, want: []string{"[lo]"}},
		{id: "P029", name: "RTM_NEWADDR", try: change(unix.RTM_NEWADDR, unix.SizeofIfAddrmsg, 4), want: refused},
		{id: "P029", name: "RTM_NEWLINK", try: change(unix.RTM_NEWLINK, unix.SizeofIfInfomsg, 4), want: refused},
		{id: "P029", name: "RTM_NEWQDISC", try: change(unix.RTM_NEWQDISC, 20, 4), want: refused}, // struct tcmsg
		{id: "P029", name: "netlink messages that may change something", try: changes, want: []string{none}},
		{id: "P029", name: "NETLINK_LISTEN_ALL_NSID", try: listenEverywhere, want: refused},
	}
}

func links() string {
	all, err := net.Interfaces()
	if err != nil {
		return outcome(err)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return list(names)
}

// change sends a message whose body has the index of a link at an offset.
func change(kind uint16, size, index int) func() string {
	return func() string {
		body := make([]byte, size)
		binary.NativeEndian.PutUint32(body[index:], noIndex)
		return outcome(request(kind, body))
	}
}

// changes lists the messages that are not for asking alone and for which no right is
// needed. Their bodies are too short to mean anything.
func changes() string {
	var open []string
	for kind := uint16(unix.RTM_BASE); kind <= unix.RTM_MAX; kind++ {
		const get = 2 // of the four kinds of each object
		if kind&3 == get {
			continue
		}
		if err := request(kind, make([]byte, unix.SizeofRtGenmsg+3)); !errors.Is(err, unix.EPERM) {
			open = append(open, fmt.Sprintf("%d:%s", kind, outcome(err)))
		}
	}
	return list(open)
}

// request sends one message and returns the kernel's answer.
func request(kind uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("no socket: %s", outcome(err))
	}
	defer unix.Close(fd)
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, make([]byte, 8)...) // sequence and port
	if err := unix.Sendto(fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("an answer that is no error")
	}
	if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// listenEverywhere asks for the events of other network namespaces.
func listenEverywhere() string {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return "no socket: " + outcome(err)
	}
	defer unix.Close(fd)
	return outcome(unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1))
}
