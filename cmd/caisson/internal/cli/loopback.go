package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// minToken is how long a token is at least, in characters.
const minToken = 16

// EndOnSignal is a context that ends when this process is to end.
func EndOnSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// LoopbackFlags say where a server of an agent listens.
type LoopbackFlags struct{ Listen, TokenFile string }

// Token is the one that clients need.
func (f LoopbackFlags) Token() (string, error) {
	if f.TokenFile == "" {
		return rand.Text(), nil
	}
	b, err := readSecret(f.TokenFile)
	if err != nil {
		return "", Usage("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", Usage("--token-file %s: the token has to be one word of %d characters or more", f.TokenFile, minToken)
	}
	return token, nil
}

// readSecret reads a file that nobody but its owner may read.
func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("file %q has mode %#o: others may use it; chmod 600 it", path, mode)
	}
	return io.ReadAll(file)
}

// Open refuses what other hosts could reach.
func (f LoopbackFlags) Open() (net.Listener, error) {
	host, _, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return nil, Usage("--listen %s: give ADDR:PORT, such as 127.0.0.1:8808", f.Listen)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, Usage("--listen %s: give an address of the loopback interface, such as 127.0.0.1; let a proxy with TLS stand before it for other hosts", f.Listen)
	}
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return nil, Usage("--listen: %w", err)
	}
	return l, nil
}

// ServeLoopback serves HTTP until ctx ends. Announce tells the address.
func ServeLoopback(ctx context.Context, l net.Listener, h http.Handler, announce func() error) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // its calls end with their requests
	defer stop()
	if err := announce(); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return sbxerr.Wrap(sbxerr.ClientIO, "caisson.listen", err)
	}
	return nil
}
