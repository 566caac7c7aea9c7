package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

var (
	// errTaken says that a name or a key is another sandbox's.
	errTaken = errors.New("taken")
	// errMeant says so of the sandbox that match finds for the same request.
	errMeant = fmt.Errorf("%w", errTaken)
)

// claimNameLocked refuses a name or a key that another sandbox of the same owner
// has. Owners do not see each other's sandboxes, so their names do not meet.
func (m *Manager) claimNameLocked(r record) error {
	var taken error
	for _, other := range m.sandboxes {
		err := r.clash(other.kept())
		if errors.Is(err, errMeant) { // before any other reason
			return err
		}
		taken = cmp.Or(taken, err)
	}
	return taken
}

// clash is why r cannot be beside have. An ID is a name to everybody; whose it is
// tells only who sees it.
func (r record) clash(have record) error {
	const op = "runtime.create"
	own := !have.Pooled && have.OwnerUID == r.OwnerUID && have.Parent == r.Parent
	switch {
	case own && means(r.Settings, have):
		if r.Name != have.Name {
			return sbxerr.New(sbxerr.Exists, op, "the idempotency key is %w by sandbox %s", errMeant, have.ID)
		}
		return sbxerr.New(sbxerr.Exists, op, "the name %q is %w by sandbox %s", r.Name, errMeant, have.ID)
	case own && (r.Name == have.Name || r.Name == have.ID):
		return sbxerr.WithRemedy(sbxerr.Exists, op, fmt.Errorf("the name %q is %w by sandbox %s", r.Name, errTaken, have.ID),
			"choose another name, or remove the sandbox that holds it: caisson rm --force "+have.ID)
	case r.Name == have.ID:
		return sbxerr.New(sbxerr.Exists, op, "the name %q is %w", r.Name, errTaken)
	}
	return nil
}

// find returns the sandbox that ref names. One of an earlier daemon is waited for
// until it is known whether this one goes on with it.
func (m *Manager) find(ctx context.Context, ref string) (*sandbox, error) {
	for {
		s, err := m.resolve(ctx, ref)
		if err != nil || !s.awaited() {
			return s, err
		}
		if err := m.awaitAdopted(ctx, s); err != nil {
			return nil, err
		}
	}
}

// findToEnter is find for a caller that wants to run a command in the sandbox, or use its
// files.
func (m *Manager) findToEnter(ctx context.Context, ref string) (*sandbox, error) {
	s, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s, m.permit(ctx, peer.Grant.CheckEnter)
}

// resolve resolves a name, an ID, or the unique beginning of an ID, among what the
// caller may see. A name is first that of the caller's own sandbox: somebody
// else's of the same name must not be taken for it.
func (m *Manager) resolve(ctx context.Context, ref string) (*sandbox, error) {
	g, err := m.grant(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sandboxes[ref]; s != nil && s.identity().seenBy(g) {
		return s, nil
	}
	var named, begun []*sandbox
	for id, s := range m.sandboxes {
		switch who := s.identity(); {
		case !who.seenBy(g):
		case who.name == ref && who.of(g):
			return s, nil
		case who.name == ref:
			named = append(named, s)
		case len(ref) >= minPrefix && strings.HasPrefix(id, ref):
			begun = append(begun, s)
		}
	}
	if len(named) > 0 {
		return single(named, ref, "%q is the name of %d sandboxes, none of them yours: give an ID")
	}
	if len(begun) == 0 {
		if err := m.expired.missing(g, ref); err != nil {
			return nil, err
		}
	}
	return single(begun, ref, "%q is the beginning of %d IDs")
}

// minPrefix is how much of an ID names it at least.
const minPrefix = 4

// single returns the one of found; format tells of several.
func single(found []*sandbox, ref, format string) (*sandbox, error) {
	const op = "runtime.find"
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, sbxerr.WithRemedy(sbxerr.NotFound, op, fmt.Errorf("no sandbox %q", sbxerr.Clip(ref)),
			"list sandboxes: caisson ls; that of a run goes with it, unless --keep is given")
	}
	return nil, sbxerr.New(sbxerr.NotFound, op, format, ref, len(found))
}
