package sandboxes

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func PortForwardCommand(a *cli.App) *cobra.Command {
	address := "127.0.0.1"
	cmd := &cobra.Command{
		Use:   "port-forward SANDBOX [LOCAL:]PORT...",
		Short: "Forward local ports to ports inside a sandbox",
		Long: "Forward local ports to ports inside a live sandbox, published or not, until Ctrl-C. The\n" +
			"server inside sees a connection from localhost. LOCAL is PORT where it is absent, and a\n" +
			"free one where it is empty or 0.",
		Example:           "  caisson port-forward agent 8080:3000\n  caisson port-forward agent :5432",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			ways, err := waysOf(address, args[1:])
			if err != nil {
				return err
			}
			return a.With(cmd.Context(), func(client *api.Client) error { return portForward(a, cmd.Context(), client, args[0], ways) })
		},
	}
	cmd.Flags().StringVar(&address, "address", address, "listen on `ADDRESS` of this host")
	return cmd
}

// way leads from a local address to a port inside.
type way struct {
	local string
	port  uint16
}

func waysOf(address string, texts []string) (ways []way, err error) {
	for _, text := range texts {
		local, inside, two := strings.Cut(text, ":")
		if !two {
			inside = local
		}
		if local == "" {
			local = "0"
		}
		from, errFrom := strconv.ParseUint(local, 10, 16)
		port, errPort := strconv.ParseUint(inside, 10, 16)
		if errFrom != nil || errPort != nil || port == 0 {
			return nil, cli.Usage("%q is no port: give PORT or LOCAL:PORT, of 1 to 65535", text)
		}
		ways = append(ways, way{net.JoinHostPort(address, strconv.FormatUint(from, 10)), uint16(port)})
	}
	return ways, nil
}

// portForward listens for all ways, or for none, until ctx ends.
func portForward(a *cli.App, ctx context.Context, client *api.Client, ref string, ways []way) error {
	if _, err := client.Inspect(ctx, &caissonv1.InspectRequest{Ref: ref}); err != nil {
		return err
	}
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // it listens no more
		}
	}()
	for _, w := range ways {
		l, err := net.Listen("tcp", w.local)
		if err != nil {
			return sbxerr.Wrap(sbxerr.PortTaken, "caisson.port_forward", err)
		}
		listeners = append(listeners, l)
	}
	for i, l := range listeners {
		if err := a.PrintLine("%s -> %d", l.Addr(), ways[i].port); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for i, l := range listeners {
		all.Go(func() { accept(a, ctx, client, ref, l, ways[i].port) })
	}
	<-ctx.Done()
	for _, l := range listeners {
		_ = l.Close()
	}
	all.Wait()
	return nil
}

func accept(a *cli.App, ctx context.Context, client *api.Client, ref string, l net.Listener, port uint16) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			to, err := client.Forward(ctx, ref, port)
			if err != nil {
				a.Progress(fmt.Sprintf("port %d: %s", port, err))
				return
			}
			carry(ctx, to, conn.(*net.TCPConn))
		}()
	}
}

// carry carries one connection until the server inside ends it, or the caller breaks it. Either
// is told to the other end by its own.
func carry(ctx context.Context, to *api.Forwarded, conn *net.TCPConn) {
	defer to.Close()
	defer context.AfterFunc(ctx, func() { _ = to.Close() })()
	go func() {
		if _, err := io.Copy(to, conn); err != nil {
			_ = to.Close()
			return
		}
		_ = to.CloseWrite()
	}()
	_, _ = io.Copy(conn, to)
}
