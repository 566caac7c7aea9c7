// Command client tries to reach something, and says on one line how it went: what
// it was told, or "error:" and why. It runs inside of sandboxes and, as the
// control, outside. What it sends comes from one of the addresses of -source, if there
// are any.
//
//	client [-source IP,...] VERB ARGUMENT...
//
//	client http URL [HOST]      GET, with another Host header if it is given
//	client later URL HOST       GET twice on one connection, the second time with another Host header
//	client tls ADDRESS NAME     a handshake that asks for NAME, and the first line
//	client ech ADDRESS SHOWN HIDDEN   a handshake that asks for HIDDEN and shows SHOWN
//	client echo ADDRESS         a line to an echo server, and back
//	client hold ADDRESS         the same, then "held" and waits for the end
//	client many ADDRESS N       N connections at once, each of which hears its echo
//	client serve ADDRESS        an echo server; a line "from" is answered with who asks
//	client from ADDRESS         what it answers
//	client udp ADDRESS          the same in one datagram
//	client ping IP              an echo request of ICMP, and back
//	client spoof IP ADDRESS     as udp, with another source
//	client query ADDRESS NAME TYPE...   questions to a resolver
//	client tcpquery ADDRESS NAME TYPE...   the same over TCP
//	client names NAME...        the addresses that the system's resolver gives
//	client relay ADDRESS TO     carries connections to TO
//	client request ADDRESS TEXT...   for each quoted TEXT a connection that sends it, and what was answered
//	client packet KIND IP       one packet of another protocol
//	client fuzz WHAT ADDRESS SEED N   N datagrams or connections of hostile bytes, some of them nearly right
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const timeout = 5 * time.Second

func main() {
	verbs := map[string]func(args []string) (string, error){
		"http": get, "later": later, "tls": handshake, "ech": hiddenName, "echo": echo, "hold": hold, "udp": datagram, "ping": ping, "spoof": spoof, "query": query, "names": names,
		"many": many, "bulk": bulk, "flood": flood, "serve": serve, "from": from, "tcpquery": tcpQuery, "relay": relay, "request": request, "packet": packet, "fuzz": fuzz,
	}
	flag.Func("source", "where packets come from: IP,...", addSources)
	flag.Parse()
	args := flag.Args()
	if len(args) < 2 || verbs[args[0]] == nil {
		fmt.Println("error: usage")
		os.Exit(2)
	}
	said, err := verbs[args[0]](args[1:])
	if err != nil {
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	fmt.Println(said)
}

func get(args []string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, args[0], nil)
	if err != nil {
		return "", err
	}
	if len(args) > 1 {
		req.Host = args[1]
	}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a sandbox knows no authorities
	}}
	r, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	return fmt.Sprintf("%d %s", r.StatusCode, strings.ReplaceAll(string(body), "\n", " ")), err
}

func later(args []string) (said string, err error) {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dialer.DialContext}}
	for _, host := range []string{"", args[1]} {
		req, err := http.NewRequest(http.MethodGet, args[0], nil)
		if err != nil {
			return "", err
		}
		again := false
		req = req.WithContext(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { again = c.Reused }}))
		req.Host = host
		r, err := client.Do(req)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return "", err
		}
		if host != "" && !again {
			return "", errors.New("the connection was not kept")
		}
		said = fmt.Sprintf("%d %s", r.StatusCode, strings.ReplaceAll(string(body), "\n", " "))
	}
	return said, nil
}

func handshake(args []string) (string, error) {
	c, err := tls.DialWithDialer(dialer, "tcp", args[0], &tls.Config{ServerName: args[1], InsecureSkipVerify: true}) // the name is what is looked at
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

func dial(network, address string) (net.Conn, error) {
	c, err := dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(timeout))
}

func echo(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	return pingPong(c)
}

func pingPong(c net.Conn) (string, error) {
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return "echo " + strings.TrimSpace(line), err
}

// many opens all connections before it uses the first.
func many(args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	var conns []net.Conn
	for range n {
		c, err := dial("tcp", args[0])
		if err != nil {
			return "", err
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for i, c := range conns {
		if err := c.SetDeadline(time.Now().Add(6 * timeout)); err != nil { // a full backlog drops, and TCP repeats after seconds
			return "", err
		}
		if _, err := pingPong(c); err != nil {
			return "", fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return fmt.Sprintf("%d echoed", n), nil
}

// bulk sends so many bytes, and takes all of them back.
func bulk(args []string) (string, error) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return "", err
	}
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	sent := make(chan error, 1)
	go func() { _, err := c.Write(make([]byte, n)); sent <- err }()
	_, err = io.CopyN(io.Discard, c, n)
	return fmt.Sprintf("%d echoed", n), errors.Join(err, <-sent)
}

func serve(args []string) (string, error) {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return "", err
	}
	if len(args) > 1 {
		if err := shorten(l.(*net.TCPListener), args[1]); err != nil {
			return "", err
		}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		go answer(c)
	}
}

func answer(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		line := lines.Text()
		if line == "from" {
			line, _, _ = net.SplitHostPort(c.RemoteAddr().String())
		}
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			return
		}
	}
}

func from(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "from\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return "from " + strings.TrimSpace(line), err
}

func hold(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := pingPong(c); err != nil {
		return "", err
	}
	fmt.Println("held")
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return "ended", nil
}

func datagram(args []string) (string, error) {
	c, err := dial("udp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	return pingPong(c)
}

// flood has so many exchanges of one datagram each way, and says how many were refused.
func flood(args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	refused := 0
	for range n {
		_, err := datagram(args[:1])
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENETUNREACH) {
			refused, err = refused+1, nil
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d of %d refused", refused, n), nil
}

// ping sends an echo request. The kernel fills in what it is of.
func ping(args []string) (string, error) {
	to, err := netip.ParseAddr(args[0])
	if err != nil {
		return "", err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, syscall.IPPROTO_ICMP)
	if err != nil {
		return "", err
	}
	defer syscall.Close(fd)
	wait := syscall.NsecToTimeval(timeout.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait); err != nil {
		return "", err
	}
	if err := bind(fd, syscall.AF_INET); err != nil {
		return "", err
	}
	request := []byte{8, 0, 0, 0, 0, 0, 0, 1} // RFC 792
	if err := syscall.Sendto(fd, request, 0, &syscall.SockaddrInet4{Addr: to.As4()}); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("echo of %d bytes", n), nil
}

// spoof sends with a source that need not be one of this machine's (ip(7)).
func spoof(args []string) (string, error) {
	source, err := netip.ParseAddr(args[0])
	if err != nil {
		return "", err
	}
	free := func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, ipFreebind, 1) })
		return errors.Join(controlErr, err)
	}
	d := &net.Dialer{Timeout: timeout, LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), Control: free}
	c, err := d.Dial("udp", args[1])
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	return pingPong(c)
}

const ipFreebind = 15 // IP_FREEBIND of linux/in.h

func names(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var all []string
	for _, name := range args {
		addrs, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return "", err
		}
		all = append(all, addrs...)
	}
	return strings.Join(all, " "), nil
}

func query(args []string) (string, error) { return queryOver("udp", args) }

func tcpQuery(args []string) (string, error) { return queryOver("tcp", args) }

func queryOver(network string, args []string) (string, error) {
	types := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "TXT": dnsmessage.TypeTXT, "MX": dnsmessage.TypeMX, "HTTPS": 65, "SVCB": 64, "ANY": dnsmessage.TypeALL}
	var said []string
	for _, t := range args[2:] {
		answer, err := ask(network, args[0], args[1], types[t])
		if err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s %s %d", t, strings.TrimPrefix(answer.RCode.String(), "RCode"), len(answer.Answers)))
	}
	return strings.Join(said, ", "), nil
}

func ask(network, server, name string, t dnsmessage.Type) (dnsmessage.Message, error) {
	var answer dnsmessage.Message
	packed, err := question(name, t)
	if err != nil {
		return answer, err
	}
	c, err := dial(network, server)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	if network == "tcp" { // RFC 1035, 4.2.2
		packed = append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)
	}
	if _, err := c.Write(packed); err != nil {
		return answer, err
	}
	buf := make([]byte, 4096)
	read, err := c.Read(buf)
	if err != nil {
		return answer, err
	}
	if network == "tcp" {
		return answer, answer.Unpack(buf[min(2, read):read])
	}
	return answer, answer.Unpack(buf[:read])
}

func question(name string, t dnsmessage.Type) ([]byte, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(time.Now().UnixNano()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: t, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}
