package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
)

// Alerts of TLS (RFC 8446, 6.2).
const (
	alertAccessDenied     = 49
	alertInternalError    = 80
	alertUnrecognizedName = 112
)

// How long, and for how many bytes, a refused client is still listened to: one
// that is closed while it sends would never read why.
const (
	drainTime  = time.Second
	drainBytes = 256 << 10
)

// refuse tells the client why, in its own protocol, and ends its connection.
// The client must have said what it says first already.
func refuse(c *net.TCPConn, speaks protocol, err error) {
	var message []byte
	switch speaks {
	case http1:
		message = response(err)
	case tlsHello:
		message = alert(err)
	default:
		reset(c)
		return
	}
	say(c, message)
	_ = c.Close()
}

// say sends c its last message, and waits until it has been read.
func say(c *net.TCPConn, message []byte) {
	_ = c.SetDeadline(time.Now().Add(drainTime)) // what fails here, fails below; the client is lost anyway
	if _, err := c.Write(message); err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c, drainBytes)
	}
}

// reset ends c so that its peer learns of it at once.
func reset(c *net.TCPConn) {
	if c == nil {
		return
	}
	_ = c.SetLinger(0)
	_ = c.Close()
}

// response is an HTTP response that says why.
func response(err error) []byte {
	n := policy.DenialOf(err)
	d, _ := sbxerr.Describe(n.Code)
	body := fmt.Sprintf("%s\n%s\n%s\n", n.Code, n.Reason, n.Remedy)
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nX-Caisson-Code: %s\r\nConnection: close\r\n\r\n%s",
		d.HTTP, http.StatusText(d.HTTP), len(body), n.Code, body)
	return []byte(b.String())
}

// alert is a fatal TLS alert in a record of its own.
func alert(err error) []byte {
	description := byte(alertInternalError)
	switch sbxerr.Of(err) {
	case sbxerr.EgressMismatch:
		description = alertUnrecognizedName
	case sbxerr.EgressDenied, sbxerr.EgressAddress, sbxerr.EgressECH:
		description = alertAccessDenied
	}
	const recordAlert, fatal = 21, 2
	return []byte{recordAlert, 3, 3, 0, 2, fatal, description}
}
