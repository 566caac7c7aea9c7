package access

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// DialStdioCommand is what ssh:// runs on the daemon's host: its input and output are a connection
// to the socket.
func DialStdioCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:    "dial-stdio",
		Short:  "Connect standard input and output to the daemon",
		Hidden: true,
		Args:   cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.RequireLocal("dial-stdio"); err != nil {
				return err
			}
			client, err := a.Client(cmd.Context()) // which starts the daemon where that is meant to happen
			if err != nil {
				return err
			}
			client.Close()
			conn, err := api.DialSocket(cmd.Context(), a.Socket)
			if err != nil {
				return err
			}
			return sbxerr.Wrap(sbxerr.ClientIO, "caisson.dial", carry(cmd.Context(), conn.(*net.UnixConn), a.Stdin, a.Stdout))
		},
	}
}

// carry copies both ways until the daemon hangs up. When in ends, the daemon is told so.
func carry(ctx context.Context, conn *net.UnixConn, in io.Reader, out io.Writer) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, err := io.Copy(conn, in)
		if err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			_ = conn.Close() // the other side ends, too
		}
	}()
	_, err := io.Copy(out, conn)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
