package dns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
)

func rr(t testing.TB, text string) miekg.RR {
	t.Helper()
	r, err := miekg.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRead(t *testing.T) {
	var many, chain []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("a.test. 60 IN A 9.9.9.%d", i))
		chain = append(chain, fmt.Sprintf("c%d.test. 60 IN CNAME c%d.test.", i, i+1))
	}
	for name, tc := range map[string]struct {
		records []string
		change  func(*miekg.Msg)
		want    string // addresses and ttl, or what the error says
		err     error  // of what was found, not of the server
	}{
		"plain":                {records: []string{"a.test. 60 IN A 9.9.9.9"}, want: "[9.9.9.9] 1m0s"},
		"case":                 {records: []string{"A.Test. 60 IN A 9.9.9.9"}, change: func(m *miekg.Msg) { m.Question[0].Name = "a.TEST." }, want: "[9.9.9.9] 1m0s"},
		"twice":                {records: []string{"a.test. 60 IN A 9.9.9.9", "a.test. 60 IN A 9.9.9.9"}, want: "[9.9.9.9] 1m0s"},
		"least ttl":            {records: []string{"a.test. 60 IN A 9.9.9.9", "a.test. 5 IN A 9.9.9.8"}, want: "[9.9.9.9 9.9.9.8] 5s"},
		"bounded":              {records: many, want: "[9.9.9.0 9.9.9.1 9.9.9.2 9.9.9.3 9.9.9.4 9.9.9.5 9.9.9.6 9.9.9.7 9.9.9.8 9.9.9.9 9.9.9.10 9.9.9.11 9.9.9.12 9.9.9.13 9.9.9.14 9.9.9.15] 1m0s"},
		"alias":                {records: []string{"b.test. 60 IN A 9.9.9.9", "a.test. 5 IN CNAME b.test."}, want: "[9.9.9.9] 5s"},
		"other names":          {records: []string{"b.test. 60 IN A 6.6.6.6", "a.test. 60 IN A 9.9.9.9", "c.test. 1 IN CNAME a.test."}, want: "[9.9.9.9] 1m0s"},
		"only other names":     {records: []string{"b.test. 60 IN A 6.6.6.6"}, err: ErrNoAddress},
		"other type":           {records: []string{"a.test. 60 IN AAAA 2a00::1", "a.test. 60 IN TXT \"9.9.9.9\""}, err: ErrNoAddress},
		"other class":          {records: []string{"a.test. 60 CH A 9.9.9.9"}, err: ErrNoAddress},
		"alias to nowhere":     {records: []string{"a.test. 60 IN CNAME b.test."}, err: ErrNoAddress},
		"nothing":              {err: ErrNoAddress},
		"no such name":         {change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeNameError }, err: ErrNoName},
		"a loop":               {records: []string{"a.test. 60 IN CNAME b.test.", "b.test. 60 IN CNAME a.test."}, want: "too many aliases"},
		"a chain":              {records: append(chain, "a.test. 60 IN CNAME c0.test."), want: "too many aliases"},
		"server failed":        {change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeServerFailure }, want: "SERVFAIL"},
		"server refused":       {change: func(m *miekg.Msg) { m.Rcode = miekg.RcodeRefused }, want: "REFUSED"},
		"no answer":            {change: func(m *miekg.Msg) { m.Response = false }, want: "is no answer"},
		"other id":             {change: func(m *miekg.Msg) { m.Id++ }, want: "is no answer"},
		"other opcode":         {change: func(m *miekg.Msg) { m.Opcode = miekg.OpcodeUpdate }, want: "is no answer"},
		"truncated":            {change: func(m *miekg.Msg) { m.Truncated = true }, want: "truncated"},
		"no question":          {change: func(m *miekg.Msg) { m.Question = nil }, want: "another question"},
		"two questions":        {change: func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }, want: "another question"},
		"other question":       {change: func(m *miekg.Msg) { m.Question[0].Name = "b.test." }, want: "another question"},
		"other question type":  {change: func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeAAAA }, want: "another question"},
		"other question class": {change: func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS }, want: "another question"},
	} {
		q := new(miekg.Msg).SetQuestion("a.test.", miekg.TypeA)
		r := new(miekg.Msg).SetReply(q)
		for _, text := range tc.records {
			r.Answer = append(r.Answer, rr(t, text))
		}
		if tc.change != nil {
			tc.change(r)
		}
		got, err := read(q, r)
		switch {
		case tc.err != nil:
			if err != nil || !errors.Is(got.err, tc.err) || got.addresses != nil {
				t.Errorf("%s: %+v, %v; want %v", name, got, err, tc.err)
			}
		case err != nil:
			if !strings.Contains(err.Error(), tc.want) || tc.want == "" {
				t.Errorf("%s: %v; want %q", name, err, tc.want)
			}
		case fmt.Sprint(got.addresses, " ", got.ttl) != tc.want || got.err != nil:
			t.Errorf("%s: %v; want %s", name, got, tc.want)
		}
	}
}

func TestReadIPv6(t *testing.T) {
	q := new(miekg.Msg).SetQuestion("a.test.", miekg.TypeAAAA)
	r := new(miekg.Msg).SetReply(q)
	r.Answer = []miekg.RR{rr(t, "a.test. 60 IN AAAA 2a00::1"), rr(t, "a.test. 60 IN AAAA ::ffff:127.0.0.1"), rr(t, "a.test. 60 IN A 9.9.9.9")}
	got, err := read(q, r)
	if want := "[2a00::1 ::ffff:127.0.0.1]"; err != nil || fmt.Sprint(got.addresses) != want {
		t.Errorf("%v, %v; want %s", got.addresses, err, want)
	}
}

// FuzzRead: whatever a server sends, no more is believed than what was asked for.
func FuzzRead(f *testing.F) {
	q := new(miekg.Msg).SetQuestion("a.test.", miekg.TypeA)
	q.Id = 0
	for _, records := range [][]string{{"a.test. 60 IN A 9.9.9.9"}, {"a.test. 60 IN CNAME b.test.", "b.test. 60 IN A 9.9.9.9"}} {
		r := new(miekg.Msg).SetReply(q)
		for _, text := range records {
			r.Answer = append(r.Answer, rr(f, text))
		}
		packed, err := r.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := new(miekg.Msg)
		if r.Unpack(b) != nil {
			return
		}
		got, err := read(q, r)
		if err != nil {
			return
		}
		if (len(got.addresses) == 0) == (got.err == nil) || len(got.addresses) > maxAddresses {
			t.Fatalf("%+v", got)
		}
		for _, addr := range got.addresses {
			if !addr.Is4() || !slices.ContainsFunc(r.Answer, func(r miekg.RR) bool { a, ok := r.(*miekg.A); return ok && a.A.String() == addr.String() }) {
				t.Fatalf("%s from nowhere", addr)
			}
		}
	})
}

func TestCache(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newCache(func() time.Time { return now })
	for name, tc := range map[string]struct {
		f    found
		kept time.Duration
	}{
		"asked": {found{ttl: time.Minute}, time.Minute}, "zero": {found{}, time.Second}, "long": {found{ttl: time.Hour}, 5 * time.Minute},
		"no name": {found{err: fmt.Errorf("x: %w", ErrNoName)}, 5 * time.Second}, "no address": {found{err: ErrNoAddress}, 5 * time.Second}, "failed": {found{err: errors.New("x")}, 0},
	} {
		begun := now
		c.put("a.test", tc.f)
		for _, at := range []time.Duration{0, time.Second - 1, tc.kept - 1, tc.kept, tc.kept + 1} {
			now = begun.Add(at)
			if got, ok := c.get("a.test"); at >= 0 && ok != (at < tc.kept) || ok && got.ttl != tc.f.ttl {
				t.Errorf("%s after %v: %v", name, at, ok)
			}
		}
		now = now.Add(time.Hour)
	}
}

func TestCacheIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newCache(func() time.Time { return now })
	c.put("old.test", found{ttl: time.Second})
	now = now.Add(2 * time.Second)
	for i := range maxCached + 100 {
		c.put(rrName(i), found{ttl: time.Minute})
	}
	if _, ok := c.entries["old.test"]; ok || len(c.entries) != maxCached {
		t.Errorf("%d entries, the expired one there: %v", len(c.entries), ok)
	}
	if _, ok := c.get(rrName(maxCached + 99)); !ok {
		t.Error("the last one was not kept")
	}
}
