package ctrd

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc"
)

const (
	askEvery  = 5 * time.Second
	hungAfter = 20 * time.Second // without an answer to a question that costs nothing
)

// killHung kills the server, which loop then starts again, when it does not answer:
// one that was stopped or is stuck would keep every call until its timeout, and
// sandboxes do not need it to go on. It returns when ctx ends.
func (s *Supervisor) killHung(ctx context.Context, server *os.Process) {
	conn, err := dial(s.Address())
	if err != nil {
		return // the address was good enough for the server
	}
	defer conn.Close()
	patience := startTimeout
	for err == nil {
		if err = ask(ctx, conn, patience); err == nil && !sleep(ctx, askEvery) {
			return
		}
		patience = hungAfter
	}
	if ctx.Err() == nil {
		s.cfg.Logger.Warn("containerd does not answer; killing it", "err", err)
		server.Kill() // fails only if it has just ended
	}
}

func ask(ctx context.Context, conn *grpc.ClientConn, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return checkServing(ctx, conn)
}
