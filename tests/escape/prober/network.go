package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// networkProbes: a sandbox without a network has a loopback of its own and
// nothing else. No attempt sends a packet beyond the loopback: connecting a UDP
// socket only looks for a route.
func networkProbes() []probe {
	return []probe{
		{id: "P085", name: "interfaces", try: interfaces, want: []string{"[lo]"}},
		{id: "P085", name: "IPv4 routes", try: routes("/proc/net/route", 0), want: []string{none}},
		{id: "P085", name: "IPv6 routes", try: routes("/proc/net/ipv6_route", 9), want: []string{none}},
		{id: "P085", name: "IPv6 addresses", try: routes("/proc/net/if_inet6", 5), want: []string{none}},
		{id: "P085", name: "route to IPv4 (TEST-NET-1)", try: route4, want: []string{"ENETUNREACH"}},
		{id: "P085", name: "route to IPv6 (documentation)", try: route6, want: []string{"ENETUNREACH"}},
		{id: "P085", name: "listener on the host's loopback", try: dial, want: []string{"ECONNREFUSED"}},
		{id: "P085", name: "network statistics of the host", try: socketsOfHost("/proc/net/tcp"), want: []string{none}},
		{id: "P073", name: "abstract unix socket of the host", try: abstract, want: []string{"ECONNREFUSED"}},
		{id: "P073", name: "abstract unix sockets that can be seen", try: socketsOfHost("/proc/net/unix"), want: []string{none}},
		{id: "P087", name: "unix socket of the host", try: unixPath, want: []string{"ENOENT", "EACCES"}},
	}
}

func interfaces() string {
	var found []string
	for line := range strings.Lines(readText("/proc/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			found = append(found, strings.TrimSpace(name))
		}
	}
	return list(found)
}

// routes lists the lines of a table whose interface, a column of it, is not
// the loopback.
func routes(path string, column int) func() string {
	return func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			return outcome(err)
		}
		var found []string
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) > column && f[column] != "lo" && f[column] != "Iface" {
				found = append(found, f[column])
			}
		}
		return list(found)
	}
}

func route4() string {
	return udpConnect(unix.AF_INET, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
}

func route6() string {
	return udpConnect(unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}})
}

func udpConnect(family int, to unix.Sockaddr) string {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "no socket: " + outcome(err)
	}
	defer unix.Close(fd)
	return outcome(unix.Connect(fd, to))
}

func dial() string {
	return connect(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: around.port, Addr: [4]byte{127, 0, 0, 1}})
}

func abstract() string {
	return connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + around.abstract})
}

func unixPath() string {
	return connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: around.path})
}

func connect(family, kind int, to unix.Sockaddr) string {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "no socket: " + outcome(err)
	}
	defer unix.Close(fd)
	return outcome(unix.Connect(fd, to))
}

// socketsOfHost looks for the host's listeners among those of this namespace.
func socketsOfHost(path string) func() string {
	return func() string {
		text := readText(path)
		for _, mark := range []string{"@" + around.abstract, fmt.Sprintf("0100007F:%04X", around.port)} {
			if strings.Contains(text, mark) {
				return mark
			}
		}
		return none
	}
}

// lookup resolves a name, which nobody can answer.
func lookup(name string) error {
	_, err := net.LookupHost(name)
	return err
}
