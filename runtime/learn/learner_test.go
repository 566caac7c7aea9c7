package learn

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/runtime/traffic"
)

func noNeeds([]traffic.Entry) error { return nil }

// learning is a Learner that reads when it is told to, and its log.
func learning(t *testing.T) (*Learner, *traffic.Log) {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) func(string) string { return func(string) string { return filepath.Join(dir, name) } }
	log := traffic.New(traffic.Files{Carried: in("carried"), Rest: in("traffic"), Names: in("names")}, slog.New(slog.DiscardHandler))
	return New(log, "a"), log
}

func reached(name string, port uint16) attempt.Attempt {
	return attempt.Attempt{Sandbox: "a", Name: policy.Name(name), Asked: netip.AddrPortFrom(policy.Pool.Addr(), port), Address: netip.MustParseAddrPort("93.184.215.14:1"), Verdict: attempt.Allowed}
}

// More is learnt than the log holds, and each destination once.
func TestLearnerReadsAlong(t *testing.T) {
	l, log := learning(t)
	log.Attempted(reached("first.example", 443))
	for range 9 { // of which the log keeps the last four, about
		for range 1500 {
			log.Attempted(reached("many.example", 80))
		}
		l.read()
	}
	refused := reached("no.example", 80)
	refused.Verdict = attempt.Refused
	log.Attempted(refused)
	log.Attempted(reached("last.example", 22))
	got := l.Finish(noNeeds, Unrecorded{})
	if want := []string{"first.example:443", "last.example:22", "many.example:80"}; !slices.Equal(got.Rules, want) || len(got.Warnings) != 0 {
		t.Errorf("%+v, want %q", got, want)
	}
	if again, _, err := log.Entries("a", &traffic.Cursor{}); err != nil || again[0].Name == "first.example" {
		t.Errorf("the log holds everything (%v): this shows nothing", err)
	}
}

// It reads by itself while the command runs, and what comes last when it is over.
func TestLearnerFollows(t *testing.T) {
	_, log := learning(t)
	for pause := time.Millisecond; ; pause *= 2 { // nothing says that it has read
		l := New(log, "a")
		l.Start()
		time.Sleep(pause)
		log.Attempted(reached("a.example", 443))
		time.Sleep(pause)
		l.Stop()
		if len(l.seen) == 1 {
			log.Attempted(reached("b.example", 443))
			if got := l.Finish(noNeeds, Unrecorded{}).Rules; !slices.Equal(got, []string{"a.example:443", "b.example:443"}) {
				t.Errorf("%q", got)
			}
			return
		}
		if pause > 5*time.Second {
			t.Fatal("it does not read")
		}
	}
}

func TestLearnerWarns(t *testing.T) {
	l, log := learning(t)
	for i := range maxLearned + 1 {
		log.Attempted(reached(fmt.Sprintf("h%d.example", i), 443))
		if i%1000 == 0 {
			l.read()
		}
	}
	l.read()
	for range 5 * 1500 { // the first ones are dropped
		log.Attempted(reached("again.example", 443))
	}
	got := l.Finish(noNeeds, Unrecorded{Lost: 3, Open: 2})
	if len(got.Warnings) != 4 {
		t.Fatalf("%q", got.Warnings)
	}
	for i, want := range []string{"3 attempts", "2 connections are open", "no longer kept", fmt.Sprint(maxLearned)} {
		if !strings.Contains(got.Warnings[i], want) {
			t.Errorf("%q, want %q", got.Warnings[i], want)
		}
	}
	if !slices.Equal(got.Rules, []string{"*.example:443"}) && len(got.Rules) != maxLearned {
		t.Errorf("%d rules", len(got.Rules))
	}
}

// TestLearnerNamesSome: destinations that were not reached are named, up to a bound.
func TestLearnerNamesSome(t *testing.T) {
	l, _ := learning(t)
	for i := range maxMissed + 1 {
		l.miss(traffic.Entry{Kind: traffic.Lookup, Name: fmt.Sprintf("n%d.example", i), Code: sbxerr.EgressDenied, Reason: "it is allowed by no rule"})
	}
	got := l.Finish(noNeeds, Unrecorded{}).Warnings
	if len(got) != maxMissed+1 || !strings.Contains(got[maxMissed], "further destinations were not reached") {
		t.Errorf("%q", got)
	}
}

func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want []string
	}{{nil, nil}, {errors.New("one"), []string{"one"}}, {errors.Join(errors.New("a"), errors.New("b")), []string{"a", "b"}}} {
		if got := reasons(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q", tt.err, got)
		}
	}
}
