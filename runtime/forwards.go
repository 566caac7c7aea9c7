package runtime

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/forward"
)

// Forwards shows the fleet to the service of streams to ports inside.
type Forwards struct{ *Manager }

// Inside implements forward.Fleet. A stream is work: the sandbox is not idle.
func (f Forwards) Inside(ctx context.Context, ref string) (forward.Inside, error) {
	s, err := f.findToEnter(ctx, ref)
	if err != nil {
		return forward.Inside{}, err
	}
	defer s.keeper.Awake(ctx)()
	r, err := s.accepting()
	if err == nil && isHosts(r.Network) {
		err = sbxerr.New(sbxerr.Unisolated, "runtime.forward", "a sandbox with isolation none has the host's network: connect to the port there")
	}
	path := f.paths.netns(s.id)
	return forward.Inside{
		ID: s.id, Name: ref,
		Sockets: func(n int) ([]*os.File, error) { return netns.OpenSockets(path, n) },
		Until: func(ctx context.Context) (context.Context, context.CancelFunc) {
			done, over := f.Busy(), f.workOnFiles(s)
			ctx, stop := s.untilEnding(ctx)
			ctx, left := f.untilHandOver(ctx, s)
			return ctx, func() { left(); stop(); over(); done() }
		},
	}, err
}
