package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/net_tstamp.h, asm-generic/socket.h and linux/udp.h.
const (
	stampSent     = 1 << 1  // SOF_TIMESTAMPING_TX_SOFTWARE
	stampReport   = 1 << 4  // SOF_TIMESTAMPING_SOFTWARE
	stampQueued   = 1 << 8  // SOF_TIMESTAMPING_TX_SCHED
	stampAcked    = 1 << 9  // SOF_TIMESTAMPING_TX_ACK
	stampWithout  = 1 << 11 // SOF_TIMESTAMPING_OPT_TSONLY: without the packet's data
	soMemInfo     = 55
	udpCork       = 1
	muchInSockets = 64 << 20
	datagram      = 60_000
)

// socketHoards are ways to have the kernel hold memory for sockets, each of which it
// charges to no cgroup. Fill does it once, as far as it goes.
var socketHoards = map[string]struct{ open, fill func(fd int) error }{
	"udp-stamps":     {stamps(stampSent | stampQueued | stampReport | stampWithout), send},
	"udp-data":       {stamps(stampSent | stampQueued | stampReport), send},
	"udp-stamps-msg": {stamps(stampReport | stampWithout), sendAsking},
	"udp-more":       {unbound, sendMore},
	"udp-cork":       {cork, send},
	"udp-errors":     {receiveErrors, send},
	"udp-too-long":   {receiveErrors, sendTooMuch},
	"tcp-stamps":     {stamps(stampSent | stampQueued | stampAcked | stampReport | stampWithout), sendStream},
}

// hoardSockets opens sockets until they hold much, and counts what they hold.
func hoardSockets(way string) func(string) (int, error) {
	return func(string) (int, error) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return 0, err
		}
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return 0, err
		}
		total := 0
		for total < muchInSockets {
			n, err := hoardSocket(way)
			if err != nil {
				return total, err
			}
			if total += n; n < 4<<10 {
				return total, errors.New("a socket holds nothing")
			}
		}
		awaitEnd()
		return total, nil
	}
}

// hoardSocket opens one, and has it hold all that it can.
func hoardSocket(way string) (int, error) {
	kind := unix.SOCK_DGRAM
	if way == "tcp-stamps" {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	for _, o := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 8<<20); err != nil {
			return 0, err
		}
	}
	if err := connectLoopback(fd, kind); err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	if err := socketHoards[way].open(fd); err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	for held, idle := 0, 0; ; {
		err := socketHoards[way].fill(fd)
		now, infoErr := heldBy(fd)
		if infoErr != nil {
			return 0, infoErr
		}
		if idle++; now > held {
			held, idle = now, 0
		}
		if idle == 50 || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
			return now, nil // less than it held where the kernel dropped what it could not send
		}
	}
}

// connectLoopback connects a datagram socket to a port where nobody is, and a stream to
// a listener of its own.
func connectLoopback(fd, kind int) error {
	to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
	if kind == unix.SOCK_DGRAM {
		return unix.Connect(fd, to)
	}
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: to.Addr}), unix.Listen(l, 1)); err != nil {
		return err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, at); err != nil {
		return err
	}
	other, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err == nil {
		peers[fd] = other
	}
	return err
}

// peers are the other ends of streams.
var peers = map[int]int{}

// heldBy is the memory of a socket's queues, as it tells itself (SO_MEMINFO).
func heldBy(fd int) (int, error) {
	var info [36]byte
	size := uint32(len(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, soMemInfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(binary.NativeEndian.Uint32(info[0:]) + binary.NativeEndian.Uint32(info[8:])), nil
}

func unbound(int) error { return nil }

func stamps(flags int) func(int) error {
	return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags) }
}

func cork(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, udpCork, 1) }

func receiveErrors(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1) }

var block [datagram]byte

func send(fd int) error { return unix.Sendto(fd, block[:1000], unix.MSG_DONTWAIT, nil) }

func sendMore(fd int) error {
	return unix.Sendto(fd, block[:1000], unix.MSG_DONTWAIT|unix.MSG_MORE, nil)
}

// sendTooMuch fails each time, and the kernel queues an error for each.
func sendTooMuch(fd int) error {
	_ = unix.Sendto(fd, block[:], unix.MSG_DONTWAIT|unix.MSG_MORE, nil)
	err := unix.Sendto(fd, block[:10_000], unix.MSG_DONTWAIT|unix.MSG_MORE, nil)
	if errors.Is(err, unix.EMSGSIZE) {
		return nil
	}
	return err
}

// sendAsking asks for time stamps by a control message.
func sendAsking(fd int) error {
	b := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SO_TIMESTAMPING
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], stampSent|stampQueued)
	_, err := unix.SendmsgN(fd, block[:1000], b, nil, unix.MSG_DONTWAIT)
	return err
}

// sendStream has its peer read, so that the send queue stays empty.
func sendStream(fd int) error {
	err := unix.Sendto(fd, block[:1], unix.MSG_DONTWAIT, nil)
	if err == nil {
		_, err = unix.Read(peers[fd], make([]byte, 100))
		if errors.Is(err, unix.EAGAIN) {
			err = nil
		}
	}
	return err
}

// hoardLater hoards when the file "go" appears in dir, and says so by the file "held".
func hoardLater(dir string) (int, error) {
	for {
		if _, err := os.Stat(dir + "/go"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for total := 0; total < muchInSockets; {
		n, err := hoardSocket("udp-cork")
		if err != nil {
			return total, err
		}
		total += n
	}
	if err := os.WriteFile(dir+"/held", nil, 0o644); err != nil {
		return 0, err
	}
	time.Sleep(time.Minute)
	return muchInSockets, nil
}

// each is how many sockets one process holds: less than any host lets it.
const each = 500

// holdSockets has idle sockets, in processes of its own, for as many seconds as arg says after
// their number, or for longer than the pause between two looks at them.
func holdSockets(arg string) (int, error) {
	number, seconds, _ := strings.Cut(arg, ":")
	want, err := strconv.Atoi(number)
	if err != nil {
		return 0, err
	}
	if seconds == "" {
		seconds = "3"
	}
	held, err := strconv.Atoi(seconds)
	if err != nil {
		return 0, err
	}
	if want <= each {
		for n := range want {
			if _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
				return n, err
			}
		}
		time.Sleep(time.Duration(held) * time.Second)
		return want, nil
	}
	var holders []*exec.Cmd
	for n := 0; n < want; n += each {
		holder := exec.Command("/proc/self/exe", "bomb", "sockets", fmt.Sprintf("%d:%s", min(each, want-n), seconds))
		if err := holder.Start(); err != nil {
			return n, err
		}
		holders = append(holders, holder)
	}
	for _, holder := range holders {
		err = errors.Join(err, holder.Wait())
	}
	return want, err
}

// floodSockets fills datagrams that are not sent, in as many processes as arg says, as fast as
// it can: some 2.5 GB a second, 1 GiB in 20 processes.
func floodSockets(arg string) (int, error) {
	want, err := strconv.Atoi(arg)
	if err != nil {
		return 0, err
	}
	if want == 1 {
		to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
		for n := range 900 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Sendto(fd, block[:], unix.MSG_DONTWAIT|unix.MSG_MORE, to)
			}
			if err != nil {
				return n, err
			}
		}
		time.Sleep(3 * time.Second) // longer than the pause between two looks
		return 900, nil
	}
	var children []*exec.Cmd
	for n := range want {
		child := exec.Command("/proc/self/exe", "bomb", "flood", "1")
		if err := child.Start(); err != nil {
			return n, err
		}
		children = append(children, child)
	}
	for _, child := range children {
		err = errors.Join(err, child.Wait())
	}
	return 900 * want, err
}
