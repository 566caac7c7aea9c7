package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/limits"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// descriptors counts those that this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// eventually waits for what nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// asking are callers of a Share who wait.
type asking struct {
	all   sync.WaitGroup
	leave context.CancelFunc

	mu   sync.Mutex
	errs []error
}

// askFor has many callers ask s at once, each for one of names in turn.
func askFor(s *Share, many int, names ...policy.Name) *asking {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asking{leave: cancel}
	for i := range many {
		a.all.Go(func() {
			_, err := s.Resolve(ctx, names[i%len(names)])
			a.mu.Lock()
			defer a.mu.Unlock()
			a.errs = append(a.errs, err)
		})
	}
	return a
}

// refused counts the callers who were told that there is no place.
func (a *asking) refused() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, err := range a.errs {
		if sbxerr.Of(err) == sbxerr.EgressBusy {
			n++
		}
	}
	return n
}

// Many names that nobody answers for cost no more descriptors than there are places,
// however many sandboxes and callers want them, and another sandbox's name has its answer
// meanwhile. All places are free when nobody asks any more.
func TestLookupsAreBounded(t *testing.T) {
	const callers, sandboxes = 200, 5
	z := &zone{records: dual, deaf: "silent.test."}
	first := upstream(t, z)
	h := limits.New(3 * maxLookups)
	share := func() *Share {
		s := first.upstream.Share()
		s.part = h.Share()
		return s
	}
	names := silent(callers)
	begun, before := time.Now(), descriptors(t)
	var all []*asking
	for n := range sandboxes {
		a := askFor(share(), callers, names...)
		defer a.leave()
		all = append(all, a)
		if n == 0 {
			eventually(t, "it has all that one may have", func() bool { return h.Taken() == maxLookups })
		}
	}
	eventually(t, "the limiter is full", func() bool {
		n := 0
		for _, a := range all {
			n += a.refused()
		}
		return n > 0
	})
	const most = 2 * 3 * maxLookups
	eventually(t, "most places have their sockets", func() bool { return descriptors(t)-before > most*3/4 })
	for range 20 {
		if n := descriptors(t) - before; n > most {
			t.Errorf("%d descriptors are open for lookups, and %d may be", n, most)
		}
		time.Sleep(time.Millisecond)
	}
	if got, err := share().Resolve(t.Context(), "a.test"); err != nil || len(got.Addresses) != 2 {
		t.Errorf("another sandbox's name: %v, %v", got, err)
	}
	if n := all[0].refused(); n != 0 && time.Since(begun) < tryTimeout { // later some have had their turn in vain
		t.Errorf("%d that could wait were refused at once", n)
	}
	for _, a := range all {
		a.leave()
		a.all.Wait()
	}
	eventually(t, "all places are free", func() bool { return h.Taken() == 0 })
	eventually(t, "all sockets are closed", func() bool { return descriptors(t) <= before })
}

// silent are many names for which nobody answers.
func silent(many int) []policy.Name {
	names := make([]policy.Name, many)
	for i := range names {
		names[i] = policy.Name(fmt.Sprintf("h%d.silent.test", i))
	}
	return names
}

// All who want one name have one lookup, and one turn, and are told the same.
func TestOneLookupOfAName(t *testing.T) {
	z := &zone{records: dual, gate: make(chan struct{})}
	s := upstream(t, z)
	a := askFor(s, 10*maxLookups, "a.test")
	eventually(t, "it is asked for", func() bool { return len(z.questions()) == 2 })
	if n := len(s.turns); n != 1 {
		t.Errorf("%d turns are taken", n)
	}
	close(z.gate)
	a.all.Wait()
	if err := errors.Join(a.errs...); err != nil {
		t.Error(err)
	}
	if n := len(z.questions()); n != 2 {
		t.Errorf("%d questions", n)
	}
	if n := len(s.flights); n != 0 {
		t.Errorf("%d lookups are known when all are over", n)
	}
}

// Where the caller who asks leaves, another one asks.
func TestWhoAskedLeaves(t *testing.T) {
	z := &zone{records: dual, gate: make(chan struct{})}
	s := upstream(t, z)
	first := askFor(s, 1, "a.test")
	eventually(t, "it is asked for", func() bool { return len(z.questions()) == 2 })
	others := askFor(s, 10, "a.test")
	time.Sleep(20 * time.Millisecond) // most likely they wait
	first.leave()
	first.all.Wait()
	close(z.gate)
	others.all.Wait()
	if err := errors.Join(others.errs...); err != nil || len(others.errs) != 10 {
		t.Errorf("%d answers, %v", len(others.errs), err)
	}
	if first.errs[0] == nil {
		t.Error("who left has an answer")
	}
}

// What is kept needs no turn.
func TestKeptAnswersNeedNoTurn(t *testing.T) {
	z := &zone{records: dual, deaf: "silent.test."}
	s := upstream(t, z)
	if _, err := s.Resolve(t.Context(), "a.test"); err != nil {
		t.Fatal(err)
	}
	a := askFor(s, maxLookups, silent(maxLookups)...)
	defer a.all.Wait()
	defer a.leave()
	eventually(t, "all turns are taken", func() bool { return len(s.turns) == maxLookups })
	if got, err := s.Resolve(t.Context(), "a.test"); err != nil || len(got.Addresses) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// Who waits in vain is told that it is a limit; who leaves meanwhile, why.
func TestNoTurn(t *testing.T) {
	s := upstream(t, &zone{deaf: "silent.test."})
	a := askFor(s, maxLookups, silent(maxLookups)...)
	defer a.all.Wait()
	defer a.leave()
	eventually(t, "all turns are taken", func() bool { return len(s.turns) == maxLookups })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Resolve(ctx, "a.test"); sbxerr.Of(err) != sbxerr.EgressBusy || !strings.Contains(err.Error(), "32 other lookups") {
		t.Errorf("in vain: %v", err)
	}
	enough := errors.New("enough")
	gone, end := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { end(enough) })
	if _, err := s.Resolve(gone, "a.test"); sbxerr.Of(err) != sbxerr.EgressResolve || !errors.Is(err, enough) {
		t.Errorf("who left: %v", err)
	}
}

// Nobody waits for a turn that would come too late to ask a resolver.
func TestLateTurn(t *testing.T) {
	s := upstream(t, &zone{records: dual})
	for range maxLookups {
		s.turns <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), tryTimeout+20*time.Millisecond)
	defer cancel()
	_, err := s.Resolve(ctx, "a.test")
	if left, _ := ctx.Deadline(); sbxerr.Of(err) != sbxerr.EgressBusy || time.Until(left) < tryTimeout/2 {
		t.Errorf("%v, %v before the end", err, time.Until(left))
	}
}

// A question that finds no place is refused like one past another limit.
func TestQuestionWithoutAPlace(t *testing.T) {
	b := start(t, allowed, func(c *Config) { c.Resolver.(*Share).part = limits.New(0).Share() })
	r := b.ask(t, "udp", question("a.test.", miekg.TypeA))
	if info, text := extended(r); r.Rcode != miekg.RcodeRefused || info != miekg.ExtendedErrorCodeProhibited || !strings.HasPrefix(text, "SBX-706") {
		t.Errorf("%s %d %q", miekg.RcodeToString[r.Rcode], info, text)
	}
	if got := b.seen.last(); got.Verdict != lookup.Refused || got.Rule != "limit of lookups" || got.Code != sbxerr.EgressBusy {
		t.Errorf("%+v", got)
	}
	if got := b.zone.questions(); len(got) != 0 {
		t.Errorf("upstream was asked %q", got)
	}
}

// A client over TCP that finds no place is reset and counted, and one that is over gives
// its place back, once.
func TestClientWithoutAPlace(t *testing.T) {
	h := limits.New(1)
	pc, inner := sockets(t)
	_ = pc.Close()
	full := 0
	l := ending{inner, t.Context(), h.Share(), func() { full++ }}
	defer l.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	accept := func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dial()
	first := accept()
	second := dial()
	go func() {
		_ = second.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := second.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("who found no place was left waiting")
		}
		_ = first.Close()
		_ = first.Close()
		_, _ = net.Dial("tcp", inner.Addr().String())
	}()
	third := accept()
	if full != 1 || h.Taken() != 1 {
		t.Errorf("%d found no place, %d are taken", full, h.Taken())
	}
	_ = third.Close()
	if h.Taken() != 0 {
		t.Errorf("%d places are taken", h.Taken())
	}
}
