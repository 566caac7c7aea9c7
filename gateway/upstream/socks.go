package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/proxy"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// openSOCKS leaves the protocol to the library, which reads no byte past the answer.
func (u *Proxy) openSOCKS(ctx context.Context, c net.Conn, target string) error {
	var auth *proxy.Auth
	if user, password, found := strings.Cut(u.spec.Credentials.Reveal(), ":"); found {
		auth = &proxy.Auth{User: user, Password: password}
	}
	d, err := proxy.SOCKS5("tcp", "", auth, made{c})
	if err != nil {
		return u.broken(err)
	}
	_, err = d.(proxy.ContextDialer).DialContext(ctx, "tcp", target)
	return u.answered(err, target)
}

// made is a Dialer that has dialled already.
type made struct{ net.Conn }

func (m made) Dial(string, string) (net.Conn, error) { return m.Conn, nil }

func (m made) DialContext(context.Context, string, string) (net.Conn, error) { return m.Conn, nil }

// answered tells a refusal from a proxy that broke: the library has texts for them, and
// no types.
func (u *Proxy) answered(err error, target string) error {
	if err == nil {
		return nil
	}
	var outer *net.OpError
	if errors.As(err, &outer) {
		err = outer.Err // what is around it is the address of nobody
	}
	said, refusal := strings.CutPrefix(err.Error(), "unknown error ")
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return u.broken(errEnded)
	case strings.Contains(said, "authentication"):
		return u.unknown(fmt.Sprintf("%s: %s", refusing(target), said))
	case refusal:
		return sbxerr.New(sbxerr.EgressProxy, op, "%s: %s", refusing(target), said)
	}
	return u.broken(err)
}
