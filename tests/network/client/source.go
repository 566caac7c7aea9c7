package main

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sources are the addresses of -source, at most one of each family.
var sources []netip.Addr

func addSources(list string) error {
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		sources = append(sources, addr)
	}
	return nil
}

// source is the one of a family. The zero Addr: the kernel picks.
func source(family int) netip.Addr {
	for _, addr := range sources {
		if addr.Is4() == (family == unix.AF_INET) {
			return addr
		}
	}
	return netip.Addr{}
}

// bind gives a socket its source. One of a family that has none is left alone.
func bind(fd, family int) error {
	addr := source(family)
	switch {
	case !addr.IsValid():
		return nil
	case family == unix.AF_INET:
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()})
	case family == unix.AF_INET6:
		return unix.Bind(fd, &unix.SockaddrInet6{Addr: addr.As16()})
	}
	return nil
}

// dialer opens each connection of the client.
var dialer = &net.Dialer{Timeout: timeout, Control: func(network, _ string, c syscall.RawConn) (err error) {
	family := unix.AF_INET
	if strings.HasSuffix(network, "6") {
		family = unix.AF_INET6
	}
	if controlErr := c.Control(func(fd uintptr) { err = bind(int(fd), family) }); controlErr != nil {
		return controlErr
	}
	return err
}}

// shorten gives a listener another backlog.
func shorten(l *net.TCPListener, backlog string) error {
	n, err := strconv.Atoi(backlog)
	if err != nil {
		return err
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = syscall.Listen(int(fd), n) })
	return errors.Join(err, inner)
}
