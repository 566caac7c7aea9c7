package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

const op = "upstream.open"

// Target is where the proxy is to connect.
type Target struct {
	Name    policy.Name // or empty
	Address netip.Addr  // of one without a name
	Port    uint16
}

// text renders t. A name that is not in its canonical form could hold anything, a line
// of a header too.
func (t Target) text() (string, error) {
	host := t.Address.String()
	if t.Name != "" {
		host = string(t.Name)
		if parsed, err := policy.ParseWireName(host); err != nil || parsed != t.Name {
			return "", sbxerr.New(sbxerr.Internal, op, "%q is no canonical name", host)
		}
	}
	return joinHostPort(host, t.Port), nil
}

func joinHostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Open asks the proxy at the other end of c to connect to t, until ctx ends. It returns
// the first bytes of the destination where they came along with the answer. An answer
// that is a refusal has code sbxerr.EgressProxy and names nothing of the proxy; whatever
// else goes wrong has sbxerr.EgressProxyDown.
func (u *Proxy) Open(ctx context.Context, c net.Conn, t Target) (rest []byte, err error) {
	target, err := t.text()
	if err != nil {
		return nil, err
	}
	if u.scheme == schemeSOCKS5 {
		return nil, u.openSOCKS(ctx, c, target)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	rest, err = u.openHTTP(c, target)
	if !stop() { // the deadline is set, or is about to be
		err = u.broken(errors.Join(context.Cause(ctx), err))
	}
	return rest, err
}

// connectRequest tells the parser that a good answer has no body.
var connectRequest = &http.Request{Method: http.MethodConnect}

func (u *Proxy) openHTTP(c net.Conn, target string) (rest []byte, err error) {
	if _, err := io.WriteString(c, u.request(target)); err != nil {
		return nil, u.broken(err)
	}
	reader := bufio.NewReader(&head{from: c, room: maxHead})
	answer, err := http.ReadResponse(reader, connectRequest) // its body, if it sends one, is not for reading
	if err != nil {
		return nil, u.broken(reading(err))
	}
	if answer.StatusCode/100 != 2 {
		return nil, u.refused(answer.StatusCode, target)
	}
	rest, err = reader.Peek(reader.Buffered())
	return bytes.Clone(rest), err // connections live long, and buffers need not
}

// request is the whole of what the proxy is told. Credentials go nowhere else.
func (u *Proxy) request(target string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if c := u.spec.Credentials.Reveal(); c != "" {
		fmt.Fprintf(&b, "Proxy-Authorization: Basic %s\r\n", base64.StdEncoding.EncodeToString([]byte(c)))
	}
	b.WriteString("\r\n")
	return b.String()
}

// maxHead bounds the head of the answer, in bytes, with what comes along with it.
const maxHead = 16 << 10

var (
	errLongHead = fmt.Errorf("the head of its answer is longer than %d bytes", maxHead)
	errEnded    = errors.New("it ended the connection without an answer")
)

// head reads at most so many bytes.
type head struct {
	from io.Reader
	room int
}

func (h *head) Read(p []byte) (int, error) {
	if h.room <= 0 {
		return 0, errLongHead
	}
	n, err := h.from.Read(p[:min(len(p), h.room)])
	h.room -= n
	return n, err
}

// reading says what is wrong with an answer. It repeats none of it, which may be an
// echo of the credentials.
func reading(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, errLongHead), errors.As(err, &network):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errEnded
	}
	return errors.New("its answer is no HTTP")
}

// refused is the proxy's answer that is not a success. What it says beside the status is
// not passed on.
func (u *Proxy) refused(status int, target string) error {
	text := fmt.Sprintf("%s: it answers %s", refusing(target), strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status))))
	switch {
	case status == http.StatusProxyAuthRequired:
		return u.unknown(text)
	case status/100 == 5:
		return sbxerr.WithRemedy(sbxerr.EgressProxy, op, errors.New(text), "check that the destination exists: the proxy resolves its name, and connects to it")
	}
	return sbxerr.Wrap(sbxerr.EgressProxy, op, errors.New(text))
}

func refusing(target string) string { return "the upstream proxy does not connect to " + target }

// unknown is a proxy that does not know who asks.
func (u *Proxy) unknown(text string) error {
	remedy := "the operator names a file with USER:PASSWORD by network.upstream_proxy.credentials"
	if u.spec.Credentials.Reveal() != "" {
		remedy = "the operator corrects the file that network.upstream_proxy.credentials names, and starts the daemon again"
	}
	return sbxerr.WithRemedy(sbxerr.EgressProxy, op, errors.New(text), remedy)
}

// broken is a proxy that gave no proper answer.
func (u *Proxy) broken(err error) error {
	return sbxerr.Wrap(sbxerr.EgressProxyDown, op, fmt.Errorf("ask the upstream proxy %s: %w", u, err))
}
