package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Bounds of the connections that are open at the same time, of maxConnections. Over
// HTTP/1.1 each call has its own. A caller that opens as many as it can shuts out
// nobody. The 64 that are left are for other processes of root.
const (
	maxPerUser    = 512
	maxUnlisted   = 16 // all users together that are refused anyway
	maxNotRoot    = 1792
	spareNotRoot  = 256                              // of these, for callers with few
	maxPerProcess = maxConnections - maxNotRoot - 64 // one process of root
	maxNested     = 128                              // of one sandbox

	fewConnections = 16
)

// Admit says whether a caller may do anything at all. Its error is what the
// caller is told.
type Admit func(peer.Caller) error

// Identify returns l such that each connection knows who made it, as the kernel
// says. Serve then puts the caller into the context of its requests, or answers
// with admit's refusal before the body is read.
func Identify(l *net.UnixListener, admit Admit) net.Listener {
	return &identified{UnixListener: l, admit: admit, held: newAmounts(fewConnections)}
}

// IdentifyNested is Identify for the socket that lies inside of a sandbox:
// whoever reaches it is that sandbox, whatever its ids are.
func IdentifyNested(l *net.UnixListener, sandbox string, admit Admit) net.Listener {
	return &identified{UnixListener: l, admit: admit, sandbox: sandbox, held: newAmounts(fewConnections)}
}

// identified is a listener that knows its callers.
type identified struct {
	*net.UnixListener
	admit   Admit
	sandbox string
	held    *amounts // connections
}

// Accept returns the next connection that does not exceed its caller's bounds.
// One that does is closed at once.
func (l *identified) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		who := l.identify(conn)
		leave, ok := l.enter(who)
		if ok {
			return &peerConn{UnixConn: conn, who: who, leave: leave}, nil
		}
		_ = conn.Close() // nothing was said on it
	}
}

func (l *identified) identify(conn *net.UnixConn) *peerAddr {
	c, err := peer.FromConn(conn)
	if err != nil {
		return &peerAddr{refusal: err}
	}
	if l.sandbox != "" {
		c = c.In(l.sandbox)
	}
	return &peerAddr{caller: c, refusal: l.admit(c)}
}

func boundsOf(who *peerAddr) []bound {
	switch {
	case who.refusal != nil:
		return []bound{{"unlisted", maxUnlisted, 0}, {"not root", maxNotRoot, spareNotRoot}}
	case who.caller.Sandbox != "":
		return []bound{{"nested", maxNested, 0}}
	case who.caller.UID == 0:
		return []bound{{fmt.Sprint("process ", who.caller.PID), maxPerProcess, 0}}
	}
	return []bound{{who.caller.String(), maxPerUser, 0}, {"not root", maxNotRoot, spareNotRoot}}
}

// enter counts a connection, if it is within all of its bounds.
func (l *identified) enter(who *peerAddr) (leave func(), ok bool) {
	bounds := boundsOf(who)
	if !l.held.take(bounds, 1) {
		return nil, false
	}
	return sync.OnceFunc(func() { l.held.give(bounds, 1) }), true
}

// peerConn is a connection that knows its caller.
type peerConn struct {
	*net.UnixConn
	who   *peerAddr
	leave func()
}

// RemoteAddr is where the caller travels: listeners that wrap others hide all
// of a connection but the methods of net.Conn.
func (c *peerConn) RemoteAddr() net.Addr { return c.who }

// Read implements net.Conn. While a call of HTTP/1 is served, net/http reads one byte to
// learn whether the caller is gone. One that has only said all that it has to say
// (shutdown(2)) is there still, and waits for its answer.
func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if len(p) == 1 && errors.Is(err, io.EOF) {
		err = c.awaitHangUp()
	}
	return n, err
}

// awaitHangUp returns io.EOF when the other end is closed for both directions, or the
// error of a wait that was given up.
func (c *peerConn) awaitHangUp() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		return err != nil && !errors.Is(err, unix.EINTR) || poll[0].Revents&unix.POLLHUP != 0
	})
	return cmp.Or(err, io.EOF)
}

// Close also gives the place of the connection to the next one.
func (c *peerConn) Close() error {
	c.leave()
	return c.UnixConn.Close()
}

// peerAddr is who is at the other end, or why nobody may be there.
type peerAddr struct {
	caller  peer.Caller
	refusal error
}

// Network implements net.Addr.
func (*peerAddr) Network() string { return "unix" }

// String names the caller for logs.
func (a *peerAddr) String() string { return fmt.Sprintf("%s, pid %d", a.caller, a.caller.PID) }

type refusalKey struct{}

// withPeer is the ConnContext of the HTTP server. A connection of a listener
// that knows no callers has none, and the core refuses what it asks.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	who, ok := conn.RemoteAddr().(*peerAddr)
	switch {
	case !ok:
		return ctx
	case who.refusal != nil:
		return context.WithValue(ctx, refusalKey{}, who.refusal)
	}
	return peer.NewContext(ctx, who.caller)
}

// refusePeers answers for h who may do nothing, without a look at the body.
func refusePeers(h http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err, refused := r.Context().Value(refusalKey{}).(error)
		if !refused {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close") // and so the server reads no body either
		if sbxerr.Of(err) == sbxerr.Unknown {
			err = sbxerr.Wrap(sbxerr.Peer, "server.peer", err)
		}
		_ = writer.Write(w, r, fail(err)) // who does not read it knows no better
	})
}
