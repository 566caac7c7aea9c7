package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// relay is what a program of the sandbox may put between itself and the gateway.
func relay(args []string) (string, error) {
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return "", err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		go func() {
			defer c.Close()
			to, err := dial("tcp", args[1])
			if err != nil {
				return
			}
			defer to.Close()
			go func() { _, _ = io.Copy(to, c) }()
			_, _ = io.Copy(c, to)
		}()
	}
}

// request sends what no client library would. What the first read gives, or why it
// gives nothing, is said of each text.
func request(args []string) (string, error) {
	var said []string
	for _, quoted := range args[1:] {
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return "", err
		}
		said = append(said, strconv.Quote(exchange(args[0], text)))
	}
	return strings.Join(said, " "), nil
}

func exchange(address, text string) string {
	c, err := dial("tcp", address)
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "error: " + err.Error()
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return "error: " + err.Error()
	}
	return strings.TrimSpace(line)
}

// hostile bytes: some are random, some are right but for a few.
type hostile struct{ *rand.Rand }

func (h hostile) noise(most int) []byte {
	b := make([]byte, h.IntN(most))
	for i := range b {
		b[i] = byte(h.Uint32())
	}
	return b
}

func (h hostile) nearly(right []byte) []byte {
	b := append([]byte(nil), right...)
	for range 1 + h.IntN(4) {
		switch at := h.IntN(len(b)); h.IntN(3) {
		case 0:
			b[at] = byte(h.Uint32())
		case 1:
			b = b[:at+1]
		case 2:
			b = append(b[:at], append(h.noise(64), b[at:]...)...)
		}
	}
	return b
}

// samples are what the gateway reads when all is well.
func samples() [][]byte {
	asked, err := question("web.example", dnsmessage.TypeA)
	if err != nil {
		panic(err) // the name is a constant
	}
	hello := []byte("\x16\x03\x01\x00\x47\x01\x00\x00\x43\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00\x00\x18\x00\x00\x00\x10\x00\x0e\x00\x00\x0bweb.example\x00\x2b\x00\x00")
	return [][]byte{
		asked, append([]byte{0, byte(len(asked))}, asked...), hello,
		[]byte("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"), []byte("CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	}
}

// fuzz sends N times, and does not wait for what is not answered at once.
func fuzz(args []string) (string, error) {
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return "", err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	sent, answered := 0, 0
	var last error
	const lanes = 8
	for lane := range lanes {
		wg.Go(func() {
			h := hostile{rand.New(rand.NewPCG(seed, uint64(lane)))}
			for range n / lanes {
				got, err := h.throw(args[0], args[1])
				mu.Lock()
				if err == nil {
					sent++
				} else {
					last = err
				}
				if got {
					answered++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if sent == 0 {
		return "", fmt.Errorf("nothing was sent: %w", last)
	}
	return fmt.Sprintf("sent %d, answered %d", sent, answered), nil
}

// throw sends once, and says whether there was an answer. A connection that ends while
// it is written to was sent to.
func (h hostile) throw(network, address string) (answered bool, err error) {
	c, err := dialer.Dial(network, address)
	if err != nil {
		return false, err
	}
	defer c.Close()
	text := h.noise(1400)
	if right := samples(); h.IntN(4) > 0 {
		text = h.nearly(right[h.IntN(len(right))])
	}
	if err := c.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return false, err
	}
	for len(text) > 0 { // in pieces, as nobody promises otherwise
		piece := text[:1+h.IntN(len(text))]
		if network == "udp" {
			piece = text
		}
		if _, err := c.Write(piece); err != nil {
			return false, nil // it had enough
		}
		text = text[len(piece):]
	}
	got, err := c.Read(make([]byte, 1))
	return got > 0 && !errors.Is(err, io.EOF), nil
}
