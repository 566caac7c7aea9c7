package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/mcp"
)

// minToken is how long a token is at least, in characters.
const minToken = 16

func endOnSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// listenMCP serves HTTP until ctx ends.
func (a *app) listenMCP(ctx context.Context, s *mcp.Server, f mcpFlags) error {
	token, err := mcpToken(f.tokenFile)
	if err != nil {
		return err
	}
	l, err := listenLoopback(f.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(token))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // its calls end with their requests
	defer stop()
	if err := a.printLine("http://%s/mcp", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	if f.tokenFile == "" {
		fmt.Fprintf(a.stderr, "caisson: clients need the header Authorization: Bearer %s\n", token)
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return sbxerr.Wrap(sbxerr.ClientIO, "caisson.mcp", err)
	}
	return nil
}

func mcpToken(path string) (string, error) {
	if path == "" {
		return rand.Text(), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usage("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", usage("--token-file %s: the token has to be one word of %d characters or more", path, minToken)
	}
	return token, nil
}

// listenLoopback refuses what other hosts could reach.
func listenLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usage("--listen %s: give ADDR:PORT, such as 127.0.0.1:8808", address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, usage("--listen %s: give an address of the loopback interface, such as 127.0.0.1; let a proxy with TLS stand before it for other hosts", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usage("--listen: %w", err)
	}
	return l, nil
}
