package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// said is a client that has said something.
type said struct{ *bytes.Reader }

func (said) Write(p []byte) (int, error)      { return len(p), nil }
func (said) Close() error                     { return nil }
func (said) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (said) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (said) SetDeadline(time.Time) error      { return nil }
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

// prefixed puts the length of b before it, in so many bytes.
func prefixed(size int, b ...byte) []byte {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	return append(length[4-size:], b...)
}

// helloOf is a TLS hello with these extensions, in records of so many bytes.
func helloOf(extensions []byte, record int) (b []byte) {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)                             // no session
	body = append(body, prefixed(2, 0x13, 0x01)...)    // one suite
	body = append(body, 1, 0)                          // no compression
	body = append(body, prefixed(2, extensions...)...) //
	message := append([]byte{messageClientHello}, prefixed(3, body...)...)
	for len(message) > 0 {
		n := min(record, len(message))
		b = append(append(b, recordHandshake, 3, 1), prefixed(2, message[:n]...)...)
		message = message[n:]
	}
	return b
}

// TestCost: nothing that a client says first costs more than a request may.
func TestCost(t *testing.T) {
	empty := bytes.Repeat([]byte{0xff, 0, 0, 0}, (maxPeek-200)/4)
	for i := range len(empty) / 4 { // crypto/tls refuses the second of a kind
		binary.BigEndian.PutUint16(empty[4*i:], uint16(0x4000+i))
	}
	name := append([]byte{0, 0}, prefixed(2, prefixed(2, append([]byte{0}, prefixed(2, bytes.Repeat([]byte("a."), 8000)...)...)...)...)...)
	protocols := append([]byte{0, 16}, prefixed(2, prefixed(2, bytes.Repeat([]byte{1, 'a'}, 8000)...)...)...)
	keys := append([]byte{0, 51}, prefixed(2, prefixed(2, bytes.Repeat([]byte{0xaa, 0xaa, 0, 1, 0}, 3000)...)...)...)
	for what, b := range map[string][]byte{
		"many extensions":   helloOf(empty, 16<<10),
		"small records":     helloOf(empty[:4000], 1),
		"a long name":       helloOf(name, 16<<10),
		"many protocols":    helloOf(protocols, 16<<10),
		"many keys":         helloOf(keys, 16<<10),
		"empty records":     bytes.Repeat([]byte{recordHandshake, 3, 1, 0, 0}, maxPeek/5),
		"a message too big": append([]byte{recordHandshake, 3, 1, 0x40, 0, messageClientHello, 0xff, 0xff, 0xff}, make([]byte, maxPeek)...),
	} {
		t.Run("TLS/"+what, func(t *testing.T) {
			bound.Check(t, len(b), func() {
				_, all, _ := listenTo(said{bytes.NewReader(b)}, tlsHello) // it may be refused
				_, _ = hidesName(all)
			})
		})
	}
	const start = "GET / HTTP/1.1\r\nHost: a.test\r\n"
	var numbered strings.Builder
	for i := range maxPeek / 10 {
		fmt.Fprintf(&numbered, "x%d:\r\n", i)
	}
	for what, text := range map[string]string{
		"many fields":        start + strings.Repeat("a:\r\n", maxPeek/4-20) + "\r\n",
		"many names":         start + numbered.String() + "\r\n",
		"many hosts":         start + strings.Repeat("Host:\r\n", maxPeek/7-20) + "\r\n",
		"many upgrades":      start + "Upgrade:" + strings.Repeat("a,", maxPeek/2-100) + "\r\n\r\n",
		"many encodings":     start + "Transfer-Encoding:" + strings.Repeat("a,", maxPeek/2-100) + "\r\n\r\n",
		"empty lines":        strings.Repeat("\r\n", maxPeek/2-100) + start + "\r\n",
		"a long target":      "GET http://" + strings.Repeat("%41", maxPeek/3-100) + "/ HTTP/1.1\r\n\r\n",
		"a long line":        strings.Repeat("a ", maxPeek/2),
		"a long host":        "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a.", maxPeek/2-100) + "\r\n\r\n",
		"a head that begins": strings.Repeat("a", maxPeek),
	} {
		t.Run("HTTP/"+what, func(t *testing.T) {
			bound.Check(t, len(text), func() {
				_, _, _ = listenTo(said{bytes.NewReader([]byte(text))}, http1) // it may be refused
			})
		})
	}
}
