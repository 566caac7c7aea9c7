package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caisson-run/caisson/mcp"
)

// listenMCP serves HTTP until ctx ends.
func (a *app) listenMCP(ctx context.Context, s *mcp.Server, f loopbackFlags) error {
	token, err := f.token()
	if err != nil {
		return err
	}
	l, err := f.open()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(token))
	return serveLoopback(ctx, l, mux, func() error {
		if f.tokenFile == "" {
			fmt.Fprintf(a.stderr, "caisson: clients need the header Authorization: Bearer %s\n", token)
		}
		return a.printLine("http://%s/mcp", l.Addr())
	})
}
