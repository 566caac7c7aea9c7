package agents

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/mcp"
)

// listenMCP serves HTTP until ctx ends.
func listenMCP(a *cli.App, ctx context.Context, s *mcp.Server, f cli.LoopbackFlags) error {
	token, err := f.Token()
	if err != nil {
		return err
	}
	l, err := f.Open()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.Handler(token))
	return cli.ServeLoopback(ctx, l, mux, func() error {
		if f.TokenFile == "" {
			fmt.Fprintf(a.Stderr, "caisson: clients need the header Authorization: Bearer %s\n", token)
		}
		return a.PrintLine("http://%s/mcp", l.Addr())
	})
}
