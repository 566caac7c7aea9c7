package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/ports"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// Port leads from an address of the host to a port inside of a sandbox.
type Port = ports.Port

// reopenPatience is how long a port is waited for that the gateway of a daemon which
// was killed may still hold.
const reopenPatience = 2 * time.Second

var errNoGateway = sbxerr.New(sbxerr.Gateway, "runtime.publish", "this daemon has no gateway")

// checkPublish refuses ports to a caller that may not have them.
func checkPublish(g peer.Grant, list []Port) error {
	if len(list) == 0 {
		return nil
	}
	wide := slices.ContainsFunc(list, func(p Port) bool { return !p.Local() })
	return g.CheckPublish(wide, slices.ContainsFunc(list, Port.Privileged))
}

func (m *Manager) createPorts(ctx context.Context, s *sandbox) error {
	_, err := m.updatePorts(ctx, s, &change{plan: s.plan})
	return err
}

// updatePorts listens on the ports that s is made for, or taken from the pool for. Callers that
// connect wait until the stage of the egress has them served.
func (m *Manager) updatePorts(_ context.Context, s *sandbox, c *change) (undo func() error, err error) {
	p := c.plan
	if p == nil {
		return nil, nil
	}
	if len(p.Ports)+len(p.Exposed) > 0 && m.opts.Egress == nil {
		return nil, errNoGateway
	}
	opened, err := m.published.Open(s.id, p.Ports)
	if err != nil {
		return nil, m.withHolder(err, p.Grant)
	}
	s.update(func() { s.ports, s.record.Ports = opened, opened })
	c.to.Ports = opened
	return nil, nil
}

func (h *host) removePorts(_ context.Context, id string) error { return h.published.Close(id) }

// withHolder adds to an error who has the port, if that is a sandbox which g sees.
func (m *Manager) withHolder(err error, g peer.Grant) error {
	var taken *ports.Taken
	if !errors.As(err, &taken) {
		return err
	}
	m.mu.Lock()
	holder := m.sandboxes[taken.Holder]
	m.mu.Unlock()
	if holder == nil || !holder.identity().seenBy(g) {
		return err
	}
	return sbxerr.WithRemedy(sbxerr.PortTaken, "runtime.publish", fmt.Errorf("%w: sandbox %s publishes it", taken, holder.identity().name),
		"publish another port, or 0, which picks a free one; caisson port "+holder.identity().name+" lists that sandbox's")
}

// servePorts has the gateway accept connections at the open ports of s, and links lead
// to the exposed ones.
func (h *host) servePorts(ctx context.Context, s *sandbox, exposed []uint16) error {
	var inside []uint16
	opened := s.openedPorts()
	for _, p := range opened {
		inside = append(inside, p.Inside)
	}
	if len(inside)+len(exposed) == 0 {
		return nil
	}
	if h.opts.Egress == nil {
		return errNoGateway
	}
	var before traffic.Counts
	if s.kept().Network == netns.ModeNone && h.opts.Traffic != nil { // of other modes it was added
		var err error
		if before, err = h.opts.Traffic.Counts(s.id); err != nil {
			return err
		}
	}
	path := h.paths.netns(s.id)
	return h.opts.Egress.Publish(ctx, egress.Published{
		ID: s.id, Exposed: exposed, Ports: inside, Clients: ports.ClientsOf(opened), Listeners: h.published.Files(s.id), Before: before,
		Sockets: func(n int) ([]*os.File, error) { return netns.OpenSockets(path, n) },
		Came:    func() { go s.keeper.Knock() },
	})
}

// setClients lets the clients of to connect to the open ports of s, which were those of from.
func (h *host) setClients(ctx context.Context, s *sandbox, from, to []Port) error {
	opened := ports.TakeClients(s.openedPorts(), to)
	if slices.Equal(from, to) || len(opened) == 0 {
		return nil
	}
	if err := h.opts.Egress.Admit(ctx, s.id, ports.ClientsOf(opened)); err != nil {
		return err
	}
	s.update(func() { s.ports = opened })
	return nil
}

// unpublish takes the ports away from a ready sandbox that is not used after all. It
// ends in any case: what fails here is tried again then.
func (h *host) unpublish(ctx context.Context, s *sandbox) {
	if h.opts.Egress == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
	defer cancel()
	err := errors.Join(h.opts.Egress.Remove(ctx, s.id), h.published.Close(s.id))
	s.update(func() { s.ports = nil })
	if err != nil {
		h.log.Warn("take ports away", "sandbox", s.id, "err", err)
	}
}

// adoptPorts opens the ports again that s had with an earlier daemon. What is not to
// be had is a warning: the sandbox goes on, and a later daemon tries again.
func (h *host) adoptPorts(ctx context.Context, s *sandbox) error {
	want := s.kept().Ports
	err := h.opts.Network.CheckPorts(want)
	if err == nil && len(want) > 0 {
		var opened []Port
		opened, err = h.published.Reopen(s.id, want, reopenPatience)
		s.update(func() { s.ports = opened })
	}
	if err = errors.Join(err, h.servePorts(ctx, s, s.kept().Exposed)); err != nil {
		h.log.Warn("publish ports again", "sandbox", s.id, "err", err)
		warning := fmt.Sprintf("after the daemon was started again, not all ports are published: %s", err)
		s.update(func() { s.record.Warnings = append(slices.Clone(s.record.Warnings), warning) })
	}
	return nil
}
