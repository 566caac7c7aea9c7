package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// maxPeek bounds what a client may say before it has named its host, in bytes.
const maxPeek = 32 << 10

// protocol is what is spoken on a port.
type protocol int

const (
	other protocol = iota // not looked at
	http1
	tlsHello
)

// spoken says what is expected on port.
func spoken(port uint16) protocol {
	switch port {
	case 80:
		return http1
	case 443:
		return tlsHello
	}
	return other
}

// errTooLong ends a peek.
var errTooLong = fmt.Errorf("it is longer than %d bytes", maxPeek)

// tape is a connection of which all that was read is kept, and to which
// nothing is written.
type tape struct {
	net.Conn
	kept   bytes.Buffer
	failed error // why nothing more was read
	off    bool  // what is read is not kept
}

func (t *tape) Read(p []byte) (int, error) {
	if t.off {
		return t.Conn.Read(p)
	}
	room := maxPeek - t.kept.Len()
	if room <= 0 {
		return 0, errTooLong
	}
	n, err := t.Conn.Read(p[:min(len(p), room)])
	t.kept.Write(p[:n])
	t.failed = err
	return n, err
}

func (t *tape) Write(p []byte) (int, error) { return len(p), nil }

// maxPeeks is how many clients of a sandbox are listened to at once: each costs some
// 150 KB until it has named its host, for which one that means it needs no time. What
// the others say waits in the kernel. As many may be in the middle of a later head.
const maxPeeks = 64

// peek reads what the client says first, for as long as is allowed. It returns the host
// that it names, as written, and all bytes that were read, for the destination.
func (p *Proxy) peek(f *flow) (host string, said []byte, err error) {
	if f.speaks == other {
		return "", nil, nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, p.config.Limits.Peek)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := f.client.SetReadDeadline(deadline); err != nil {
		return "", nil, err
	}
	if n, err := available(f.client); err != nil || n == 0 { // nothing is held for one that is silent
		return "", nil, p.silence(errors.Join(err, io.EOF), attempt.SaidNothing)
	}
	select {
	case p.peeks <- struct{}{}:
		defer func() { <-p.peeks }()
	case <-ctx.Done():
		return "", nil, errTooMany
	}
	host, said, err = listenTo(f.client, f.speaks)
	return host, said, errors.Join(p.silence(err, unfinished), f.client.SetReadDeadline(time.Time{}))
}

// What a client did that named no host.
const (
	unfinished = "did not finish what names its host"
)

// silence says plainly why a client was not heard, whose what is what it did: the
// texts of the network tell addresses that mean nothing to anybody.
func (p *Proxy) silence(err error, what string) error {
	var network *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the client %s within %v", what, p.config.Limits.Peek)
	case errors.As(err, &network):
		return fmt.Errorf("the client %s before it broke the connection off", what)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the client %s before it was done", what)
	}
	return err
}

// errTooMany ends a peek that never began.
var errTooMany = fmt.Errorf("%d other connections of the sandbox have not finished what names their host", maxPeeks)

// listenTo reads up to the name of the host.
func listenTo(c net.Conn, speaks protocol) (host string, said []byte, err error) {
	t := &tape{Conn: c}
	if speaks == http1 {
		host, err = hostHeader(t)
	} else {
		host, err = serverName(t)
	}
	if err != nil && t.failed != nil {
		err = t.failed // and not what a parser makes of half a line
	}
	return host, bytes.Clone(t.kept.Bytes()), err // no larger than it is: the destination may be long in coming
}

// errSeen ends the handshake when the hello has been read.
var errSeen = errors.New("the hello has been read")

// serverName is the name in a TLS ClientHello, however it is split into
// records and segments. The parser is that of crypto/tls, whose reading of the list of
// names is narrowed to one that no server reads otherwise.
func serverName(t *tape) (string, error) {
	var name string
	err := tls.Server(t, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name = h.ServerName
		return nil, errSeen
	}}).Handshake()
	switch {
	case !errors.Is(err, errSeen):
		return "", fmt.Errorf(attempt.NoHello+": %w", err)
	case name == "":
		return "", errors.New("the TLS hello names no host (SNI)")
	}
	return name, checkNameList(t.kept.Bytes())
}

// hostHeader is the host that the first request names.
func hostHeader(t *tape) (string, error) {
	in := bufio.NewReader(t)
	for emptyLine(in) {
	}
	_, host, err := readRequest(t, in)
	return host, err
}

// emptyLine skips an empty line before a request: some clients end a body with one (RFC 9112,
// 2.2).
func emptyLine(in *bufio.Reader) bool {
	start, _ := in.Peek(len(lineEnd))
	if string(start) != lineEnd {
		return false
	}
	_, _ = in.Discard(len(lineEnd)) // they are there
	return true
}

// readRequest reads the head of a request that no server reads otherwise, and the host that it
// names: in its one Host header, and in its target where that has one. All that in holds is on t.
func readRequest(t *tape, in *bufio.Reader) (r *http.Request, host string, err error) {
	from := t.kept.Len() - in.Buffered()
	if r, err = http.ReadRequest(in); err != nil {
		return nil, "", fmt.Errorf("no HTTP request: %w", err)
	}
	h, err := parseHead(string(t.kept.Bytes()[from : t.kept.Len()-in.Buffered()]))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("no HTTP request: %w", err)
	case len(h.hosts) != 1:
		return nil, "", fmt.Errorf("the HTTP request has %d Host headers", len(h.hosts))
	}
	if err := h.checkTarget(h.hosts[0]); err != nil {
		return nil, "", err
	}
	if err := h.checkBody(); err != nil {
		return nil, "", err
	}
	host, err = withoutPort(h.hosts[0])
	return r, host, err
}

// withoutPort takes the port from a host. It may be empty (RFC 3986, 3.2.3).
func withoutPort(host string) (string, error) {
	if inside, bracket := strings.CutPrefix(host, "["); bracket { // which net.SplitHostPort takes away from a name, too
		inside, _, _ = strings.Cut(inside, "]")
		if addr, err := netip.ParseAddr(inside); err != nil || !addr.Is6() {
			return "", fmt.Errorf("the Host header %s has brackets around what is no IPv6 address", quote(host))
		}
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return host, nil // it has none, or is no host at all, which the comparison finds out
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
		return "", fmt.Errorf("the Host header has the port %s", quote(port))
	}
	return name, nil
}

// compare checks that host, as the client wrote it, is name.
func compare(name policy.Name, host string) error {
	said, err := policy.ParseWireName(host)
	if err != nil {
		return fmt.Errorf("it names %s, which is no host name", quote(host))
	}
	if said != name {
		return fmt.Errorf("it names %s", said)
	}
	return nil
}
