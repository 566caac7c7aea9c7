package egress

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/lookup"
	"github.com/caisson-run/caisson/gateway/policy"
)

// hostile is the other end of a link, in hostile hands.
type hostile struct {
	*link
	to     *net.UnixConn
	killed atomic.Int32
	ended  chan error
}

func newHostile(t *testing.T, g *Gateway) *hostile {
	t.Helper()
	own, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(theirs)
	if err := errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	h := &hostile{to: c.(*net.UnixConn), ended: make(chan error, 1)}
	h.link = newLink(own, 200*time.Millisecond, func() { h.killed.Add(1) }, g.event)
	go func() {
		err := h.read()
		h.giveUp(err)
		close(h.gone)
		h.ended <- err
	}()
	t.Cleanup(func() {
		_ = h.to.Close()
		<-h.gone
	})
	return h
}

func (h *hostile) say(t *testing.T, body string) {
	t.Helper()
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	if _, err := h.to.Write(frame); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Logf("say %.40s: %v", body, err) // it was cut off
	}
}

func (h *hostile) report(t *testing.T, r control.Report) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	h.say(t, string(b))
}

// A process that breaks the rules is killed at once, whatever it says.
func TestHostileGateway(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":                 "\x00\xff",
		"an answer to nothing":    `{"Answer":{"Seq":77}}`,
		"an unknown code":         `{"Answer":{"Seq":1,"Code":"SBX-0"}}`,
		"confined twice":          `{"Confined":true}`,
		"a field of its own":      `{"Confined":true,"More":1}`,
		"deep nesting":            strings.Repeat(`{"Attempt":`, 5000),
		"a frame that is too big": strings.Repeat(" ", control.MaxReport+1),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, New(Options{}))
			h.report(t, control.Report{Confined: true})
			<-h.confined
			h.say(t, body)
			if err := <-h.ended; err == nil || h.killed.Load() == 0 {
				t.Errorf("it goes on: %v", err)
			}
			if err := h.ask(control.Request{Op: control.Ping}); !errors.Is(err, errGone) {
				t.Errorf("asked afterwards: %v", err)
			}
		})
	}
}

// One that does not answer is killed, and what was asked is certain not to be
// in force.
func TestHostileSilence(t *testing.T) {
	h := newHostile(t, New(Options{}))
	begun := time.Now()
	if err := h.ask(control.Request{Op: control.Ping}); !errors.Is(err, errGone) || h.killed.Load() == 0 {
		t.Errorf("%v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("that took %v", took)
	}
	if h.why() == nil || !strings.Contains(h.why().Error(), "no answer") {
		t.Errorf("why: %v", h.why())
	}
}

// Whoever wants to know the counters waits no longer than it wants to.
func TestHostileSilenceRefresh(t *testing.T) {
	g := New(Options{})
	if err := g.Refresh(t.Context(), "one"); err != nil {
		t.Errorf("without a process: %v", err)
	}
	h := newHostile(t, g)
	h.patience = time.Minute
	g.link = h.link
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := g.Refresh(ctx, "one"); sbxerr.Of(err) != sbxerr.Gateway || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("that took %v", took)
	}
	h.giveUp(errors.New("it was enough"))
	if err := g.Refresh(t.Context(), "one"); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("of one that is gone: %v", err)
	}
}

// One that does not read what it is asked, either.
func TestHostileDeafness(t *testing.T) {
	h := newHostile(t, New(Options{}))
	big := control.Request{Op: control.SetPolicy, Sandbox: "one", Policy: policy.Spec{Allow: []string{strings.Repeat("a", control.MaxPolicy)}}}
	if err := h.ask(big); !errors.Is(err, errGone) || h.killed.Load() == 0 {
		t.Errorf("%v", err)
	}
}

// A policy that is refused is not the one that the next process begins with, and one
// that will not let go of a sandbox is killed.
func TestHostileRefusals(t *testing.T) {
	g := New(Options{})
	e := &entry{policy: policy.Spec{Mode: policy.Allow, Allow: []string{"a.test"}}}
	if err := g.put("one", e); err != nil {
		t.Fatal(err)
	}
	h := newHostile(t, g)
	h.patience = time.Minute
	h.kill = func() { h.killed.Add(1); _ = h.to.Close() }
	g.link = h.link
	refuse := func() { // what it is asked next
		body, err := control.ReadFrame(bufio.NewReader(h.to), control.MaxRequest)
		var q control.Request
		if err = errors.Join(err, json.Unmarshal(body, &q)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
		h.report(t, control.Report{Answer: &control.Answer{Seq: q.Seq, Code: sbxerr.Gateway, Message: "no"}})
	}
	go refuse()
	if err := g.SetPolicy(t.Context(), "one", policy.Spec{Mode: policy.Open}); sbxerr.Of(err) != sbxerr.Gateway || e.policy.Mode != policy.Allow {
		t.Errorf("%v, and %+v is in force", err, e.policy)
	}
	if h.killed.Load() > 0 {
		t.Error("killed for the refusal of a policy")
	}
	go refuse()
	if err := g.Remove(t.Context(), "one"); err != nil || h.killed.Load() == 0 || g.get("one") != nil {
		t.Errorf("%v, killed %d times, %v", err, h.killed.Load(), g.get("one"))
	}
}

// What it says of sandboxes is taken only as far as it can do no harm.
func TestHostileLies(t *testing.T) {
	var told seen
	g := New(Options{Observer: &told})
	at := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("198.18.1.%d", i)) }
	e := &entry{names: map[policy.Name]netip.Addr{"a.test": at(1)}, taken: map[netip.Addr]bool{at(1): true}}
	if err := g.put("one", e); err != nil {
		t.Fatal(err)
	}
	if err := g.put("door", &entry{}); err != nil { // it only has ports
		t.Fatal(err)
	}
	h := newHostile(t, g)
	h.report(t, control.Report{Confined: true})
	// Other sandboxes do not come to be.
	h.report(t, control.Report{Attempt: &attempt.Attempt{Sandbox: "two", Verdict: attempt.Allowed}})
	h.report(t, control.Report{Query: &lookup.Query{Sandbox: "two", Verdict: lookup.Answered}})
	h.report(t, control.Report{Named: &control.Named{Sandbox: "two", Name: "x.test", Address: at(9)}})
	h.report(t, control.Report{Open: &control.Open{Sandbox: "two", Connections: 5}})
	h.report(t, control.Report{Broken: &control.Broken{Sandbox: "two"}})
	// Who resolves nothing gets no names.
	h.report(t, control.Report{Named: &control.Named{Sandbox: "door", Name: "x.test", Address: at(9)}})
	// No name and no address changes its meaning.
	h.report(t, control.Report{Named: &control.Named{Sandbox: "one", Name: "a.test", Address: at(2)}})
	h.report(t, control.Report{Named: &control.Named{Sandbox: "one", Name: "b.test", Address: at(1)}})
	h.report(t, control.Report{Named: &control.Named{Sandbox: "one", Name: "c.test", Address: at(3)}})
	// Counters stay at the most there can be.
	for range 3 {
		h.report(t, control.Report{Lost: math.MaxUint64, Attempt: &attempt.Attempt{
			Sandbox: "one", Verdict: attempt.Refused, Sent: math.MaxInt64, Received: math.MaxInt64, Skipped: math.MaxUint64, Code: sbxerr.EgressDenied,
		}})
	}
	until(t, "the last lie", func() bool { return len(told.verdicts()) == 3 })
	told.mu.Lock()
	defer told.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sandboxes) != 2 || len(e.names) != 2 || e.names["a.test"] != at(1) || e.names["c.test"] != at(3) {
		t.Errorf("%d sandboxes, names %v", len(g.sandboxes), e.names)
	}
	if c := e.counters; c.Refused != math.MaxUint64 || c.Sent != math.MaxUint64 || c.Lost != math.MaxUint64 {
		t.Errorf("counted %+v", c)
	}
	if len(told.queries) != 0 || len(told.names) != 1 {
		t.Errorf("told: %+v", &told)
	}
}

// A gateway that passes descriptors passes them to nobody.
func TestHostileDescriptors(t *testing.T) {
	h := newHostile(t, New(Options{}))
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := descriptors(t)
	body := `{"Confined":true}`
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	if err := control.Send(h.to, frame, f, f, f); err != nil {
		t.Fatal(err)
	}
	<-h.confined
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors came along", after-before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
