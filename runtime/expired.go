package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/sbxerr"
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

// forgetOne forgets the oldest of whoever has most, so that nobody makes it forget
// what it remembers for others.
func (x *expired) forgetOne() {
	type whose struct {
		owner  uint32
		parent string
	}
	of := func(e expiry) whose { return whose{e.owner, e.parent} }
	count := map[whose]int{}
	most := of(x.list[0])
	for _, e := range x.list {
		count[of(e)]++
	}
	for _, e := range x.list {
		if count[of(e)] > count[most] {
			most = of(e)
		}
	}
	oldest := slices.IndexFunc(x.list, func(e expiry) bool { return of(e) == most })
	x.list = slices.Delete(x.list, oldest, oldest+1)
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
