package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
)

// maxExpired is how many sandboxes are remembered whose time was over.
const maxExpired = 1024

// expired remembers the last sandboxes that were removed because their time was
// over, oldest first: who asks for one then hears that, rather than that it never
// was. It goes with the daemon.
type expired struct{ list []expiry }

type expiry struct {
	identity
	id  string
	at  time.Time
	why error
}

// note remembers s, which is removed, if it was for that reason.
func (x *expired) note(s *sandbox) {
	who := s.identity()
	x.list = slices.DeleteFunc(x.list, func(e expiry) bool { return who.name != "" && e.identity == who }) // of one name the last one counts
	why := s.endCause()
	if !errors.Is(why, ErrExpired) && !errors.Is(why, ErrIdle) {
		return
	}
	if len(x.list) >= maxExpired {
		x.forgetOne()
	}
	x.list = append(x.list, expiry{who, s.id, time.Now(), why})
}

// forgetOne forgets the oldest of whoever has most, of the owners and then of the makers
// for that owner, so that nobody makes it forget what it remembers for others.
func (x *expired) forgetOne() {
	owner := mostOf(x.list, func(expiry) bool { return true }, func(e expiry) uint32 { return e.owner })
	owned := func(e expiry) bool { return e.owner == owner }
	parent := mostOf(x.list, owned, func(e expiry) string { return e.parent })
	oldest := slices.IndexFunc(x.list, func(e expiry) bool { return owned(e) && e.parent == parent })
	x.list = slices.Delete(x.list, oldest, oldest+1)
}

// mostOf is what most of those in list have that are in.
func mostOf[K comparable](list []expiry, in func(expiry) bool, of func(expiry) K) (most K) {
	count := map[K]int{}
	for _, e := range list {
		if in(e) {
			count[of(e)]++
			if count[of(e)] > count[most] {
				most = of(e)
			}
		}
	}
	return most
}

// missing says why there is no sandbox ref, where it was one that g sees. The last
// one counts.
func (x *expired) missing(g peer.Grant, ref string) error {
	for i := range x.list {
		e := x.list[len(x.list)-1-i]
		if e.seenBy(g) && (e.name == ref || e.id == ref || len(ref) >= minPrefix && strings.HasPrefix(e.id, ref)) {
			return sbxerr.WithRemedy(sbxerr.NotFound, "runtime.find", fmt.Errorf("sandbox %q was removed at %s, with what its commands wrote: %w", ref, e.at.UTC().Format(time.RFC3339), e.why),
				"make another one with a longer --ttl or --idle-timeout, and give it more time before that is over: caisson update --ttl")
		}
	}
	return nil
}
