package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// maxLinks is how many other sandboxes one is linked to.
const maxLinks = 64

const linkRemedy = "write NAME=SANDBOX:PORT, such as db=postgres:5432, where that sandbox is yours, lives, and was made with --expose PORT"

// resolveLinks finds the sandboxes that links of a request lead to. They are found
// now: another one that gets the same name later is not meant.
func (m *Manager) resolveLinks(ctx context.Context, g peer.Grant, texts []string) (map[string]policy.Link, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if err := plan.AtMost(len(texts), maxLinks, "links"); err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.link", err, linkRemedy)
	}
	links := map[string]policy.Link{}
	var reasons sbxerr.Reasons
	for _, text := range texts {
		name, l, err := m.resolveLink(ctx, g, text)
		if _, twice := links[name]; err == nil && twice {
			err = errors.New("the name is linked twice")
		}
		if err != nil {
			reasons.Add(fmt.Errorf("link %q: %w", sbxerr.Clip(text), err))
			continue
		}
		links[name] = l
	}
	return links, sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.link", reasons.Err(), linkRemedy)
}

func (m *Manager) resolveLink(ctx context.Context, g peer.Grant, text string) (string, policy.Link, error) {
	name, target, named := strings.Cut(text, "=")
	ref, number, found := strings.Cut(target, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if !named || !found || err != nil {
		return "", policy.Link{}, errors.New("it is not NAME=SANDBOX:PORT")
	}
	if _, err := policy.ParseLinkName(name); err != nil {
		return "", policy.Link{}, err
	}
	s, err := m.find(ctx, ref)
	if err != nil {
		return "", policy.Link{}, err
	}
	state := s.info().State
	switch {
	case !s.identity().of(g):
		return "", policy.Link{}, fmt.Errorf("sandbox %s is another's", sbxerr.Clip(ref))
	case state != StateRunning && state != StatePaused:
		return "", policy.Link{}, fmt.Errorf("sandbox %s is %s", ref, state)
	case !slices.Contains(s.kept().Exposed, uint16(port)):
		return "", policy.Link{}, fmt.Errorf("sandbox %s does not expose port %d", ref, port)
	}
	return name, policy.Link{Sandbox: s.id, Port: uint16(port)}, nil
}
