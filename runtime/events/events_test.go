package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
)

// kept records lines in memory, and fails while failing is set.
type kept struct {
	lines    []string
	failing  error
	required bool
}

func (k *kept) Record(line []byte, _ bool) error {
	if k.failing == nil {
		k.lines = append(k.lines, string(line))
	}
	return k.failing
}

func (k *kept) Required() bool { return k.required }

func newBus(r events.Recorder) *events.Bus {
	return events.New(events.Options{Source: "//host/caisson", Boot: "b1", Recorder: r})
}

func all(*events.Event) bool { return true }

// read returns what a reader that begins at since gets.
func read(t *testing.T, b *events.Bus, since string) []*events.Event {
	t.Helper()
	s, err := events.ParseSince(since, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Read(s)
	if err != nil {
		t.Fatal(err)
	}
	var list []*events.Event
	err = r.Follow(t.Context(), false, all, func(e *events.Event) error { list = append(list, e); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func ids(list []*events.Event) (ids []string) {
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestRecordsCloudEvents(t *testing.T) {
	k := &kept{}
	b := newBus(k)
	ctx := events.WithRequestID(peer.NewContext(t.Context(), peer.User(1000, 1000, nil, 1)), "req-1")
	code := 0
	d := events.Data{SandboxID: "s1", ExecID: "2", ExitCode: &code}
	d.SetArgs([]string{"sh", "-c", "a <b> && c"}, []string{"TOKEN=secret", "PATH=/bin"})
	b.Emit(ctx, events.Event{Type: events.ExecEnded, Data: d})
	if len(k.lines) != 1 || strings.Contains(k.lines[0], "secret") || strings.Contains(k.lines[0], "\n") {
		t.Fatalf("recorded %q", k.lines)
	}
	var got struct {
		SpecVersion, ID, Source, Type, Subject string
		Time                                   time.Time
		Data                                   map[string]any
	}
	if err := json.Unmarshal([]byte(k.lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if got.SpecVersion != "1.0" || got.ID != "b1-1" || got.Source != "//host/caisson" || got.Type != "run.caisson.exec.ended" ||
		got.Subject != "sandboxes/s1/execs/2" || time.Since(got.Time) > time.Minute {
		t.Errorf("envelope %+v", got)
	}
	want := map[string]any{
		"caller": "uid 1000", "request_id": "req-1", "sandbox_id": "s1", "exec_id": "2", "exit_code": 0.0,
		"args": []any{"sh", "-c", "a <b> && c"}, "env": []any{"PATH", "TOKEN"},
	}
	if fmt.Sprint(got.Data) != fmt.Sprint(want) {
		t.Errorf("data %v, want %v", got.Data, want)
	}
}

// The CLI reads a record as the API's message, whose durations have nine digits at most.
func TestDurationsAreOfTheAPI(t *testing.T) {
	list := []time.Duration{0, 1, -1, time.Second, -1500 * time.Millisecond, 10 * time.Second, 1669210387, 3999898384, 7906801405, -48942469440}
	for range 10000 {
		list = append(list, time.Duration(rand.Int64N(int64(time.Minute))))
	}
	for _, want := range list {
		text, err := events.Duration(want).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var read durationpb.Duration
		if err := protojson.Unmarshal([]byte(strconv.Quote(string(text))), &read); err != nil || read.AsDuration() != want {
			t.Fatalf("%d ns is written as %s and read as %v, %v", want, text, read.AsDuration(), err)
		}
		var back events.Duration
		if err := back.UnmarshalText(text); err != nil || time.Duration(back) != want {
			t.Fatalf("%d ns is written as %s and read back as %d, %v", want, text, back, err)
		}
	}
}

func TestLongArguments(t *testing.T) {
	var d events.Data
	d.SetArgs([]string{"echo", strings.Repeat("x", events.MaxArgs), "end"}, nil)
	if len(d.Args) != 1 || !strings.HasPrefix(d.ArgsDigest, "sha256:") || d.ArgsBytes != int64(events.MaxArgs+len("echo end")+2) {
		t.Errorf("args %d, digest %q of %d bytes", len(d.Args), d.ArgsDigest, d.ArgsBytes)
	}
	var short events.Data
	if short.SetArgs([]string{"echo", strings.Repeat("x", events.MaxArgs-100)}, nil); len(short.Args) != 2 || short.ArgsDigest != "" || short.ArgsBytes != 0 {
		t.Errorf("what has room: args %d, digest %q of %d bytes", len(short.Args), short.ArgsDigest, short.ArgsBytes)
	}
	// What counts is what is written: a control character takes six bytes.
	for name, text := range map[string]string{"control characters": "\x01", "torn": "\xff", "empty": "", "markup": "<"} {
		many, one := slices.Repeat([]string{text}, 30000), []string{strings.Repeat(text, 30000)}
		for _, args := range [][]string{many, one} {
			var d events.Data
			d.SetArgs(args, args)
			if data, err := json.Marshal(d); err != nil || len(data) > 2*events.MaxArgs+1024 {
				t.Errorf("%s: a record of %d bytes, %v", name, len(data), err)
			}
		}
	}
	var other events.Data
	other.SetArgs([]string{"echo", strings.Repeat("x", events.MaxArgs), "END"}, nil)
	if other.ArgsDigest == d.ArgsDigest {
		t.Error("other arguments have the same digest")
	}
	var torn events.Data
	torn.SetArgs([]string{"\xff"}, nil)
	if torn.ArgsDigest == "" {
		t.Error("arguments that JSON cannot hold have no digest")
	}
}

func TestReadersBeginWhereTheyAsk(t *testing.T) {
	b := newBus(nil)
	for range 5 {
		b.Emit(t.Context(), events.Event{Type: events.EngineUp})
	}
	for since, want := range map[string]string{
		"":                     "[b1-1 b1-2 b1-3 b1-4 b1-5]",
		"b1-3":                 "[b1-4 b1-5]",
		"b1-5":                 "[]",
		"1h":                   "[b1-1 b1-2 b1-3 b1-4 b1-5]",
		"2100-01-02T15:04:05Z": "[]",
	} {
		if got := fmt.Sprint(ids(read(t, b, since))); got != want {
			t.Errorf("since %q: %s, want %s", since, got, want)
		}
	}
}

func TestRefusedBeginnings(t *testing.T) {
	b := newBus(nil)
	for range 20_000 {
		b.Emit(t.Context(), events.Event{Type: events.EngineUp})
	}
	for since, want := range map[string]sbxerr.Code{
		"yesterday": sbxerr.APIUsage, "b1-": sbxerr.APIUsage, "b1-01": sbxerr.APIUsage, "-3": sbxerr.APIUsage, "-5m": sbxerr.APIUsage,
		"b1-20001": sbxerr.APIUsage, "b1-1": sbxerr.EventsGone, "b0-20000": sbxerr.EventsGone,
	} {
		s, err := events.ParseSince(since, time.Now())
		if err == nil {
			_, err = b.Read(s)
		}
		if sbxerr.Of(err) != want {
			t.Errorf("since %q: %v, want code %s", since, err, want)
		}
	}
	if got := read(t, b, "b1-19999"); len(got) != 1 {
		t.Errorf("the newest: %v", ids(got))
	}
}

// Paths past the bound are told by their digest and length, many input files by their bytes.
func TestLongPaths(t *testing.T) {
	b := newBus(nil)
	long := "/" + strings.Repeat("\x01", 4000)
	d := events.Data{Cwd: long, Path: long, To: "/" + strings.Repeat("x", 4000)}
	for range 16 {
		d.Inputs = append(d.Inputs, events.Input{Path: "/tmp/" + strings.Repeat("\x02", 200), Bytes: 7})
	}
	b.Emit(t.Context(), events.Event{Type: events.ExecStarted, Data: d})
	got := read(t, b, "")[0].Data
	if data, err := json.Marshal(got); err != nil || len(data) > 3*events.MaxArgs {
		t.Errorf("a record of %d bytes, %v", len(data), err)
	}
	if got.To != d.To || !strings.HasPrefix(got.Cwd, "… sha256:") || !strings.HasSuffix(got.Cwd, "of 4001 bytes") || got.Path != got.Cwd {
		t.Errorf("%q and %q to %q", got.Cwd, got.Path, got.To)
	}
	var sum int64
	for _, f := range got.Inputs {
		sum += f.Bytes
	}
	if n := len(got.Inputs); n < 2 || n > 8 || got.Inputs[n-1].Path != "…" || sum != 16*7 {
		t.Errorf("%+v", got.Inputs)
	}
}

// Large events take the place of more small ones: what is kept is bounded by bytes.
func TestKeptBytesAreBounded(t *testing.T) {
	b := newBus(nil)
	d := events.Data{}
	long := strings.Repeat("x", events.MaxArgs-100)
	d.SetArgs([]string{long}, []string{long + "=1"})
	for range 8000 {
		b.Emit(t.Context(), events.Event{Type: events.ExecStarted, Data: d})
	}
	if got := read(t, b, ""); len(got) < 1600 || len(got) > 2100 {
		t.Errorf("%d events of 8 KiB are kept", len(got))
	}
}

// of is an event of the user uid.
func of(uid uint32) events.Event {
	return events.Event{Type: events.ExecFailed, Scope: events.Scope{Owner: uid}}
}

// A user who makes many events drops none of others', and they miss none.
func TestKeptIsShared(t *testing.T) {
	b := newBus(nil)
	first := func(e events.Event) string {
		b.Emit(t.Context(), e)
		list := read(t, b, "")
		return list[len(list)-1].ID
	}
	cursor := first(of(1))
	first(events.Event{Type: events.EngineUp, Scope: events.Scope{Host: true}})
	for n := range 40_000 {
		b.Emit(t.Context(), of(2))
		if n == 20_000 {
			b.Emit(t.Context(), of(1))
		}
	}
	s, err := events.ParseSince(cursor, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(s); sbxerr.Of(err) != sbxerr.EventsGone {
		t.Errorf("a reader of all goes on: %v", err)
	}
	if _, err := b.ReadOf(2, events.Since{}); err != nil {
		t.Error(err)
	}
	r, err := b.ReadOf(1, s)
	if err != nil {
		t.Fatal(err)
	}
	mine := func(e *events.Event) bool { return e.Type == events.Lost || e.Scope.Owner == 1 && !e.Scope.Host }
	var seen []string
	take := func(e *events.Event) error { seen = append(seen, e.ID+string(e.Type)); return nil }
	if err := r.Follow(t.Context(), false, mine, take); err != nil || fmt.Sprint(seen) != "[b1-20004exec.failed]" {
		t.Errorf("the modest user reads %v, %v", seen, err)
	}

	var lost, got uint64
	all, err := b.Read(events.Since{})
	if err != nil {
		t.Fatal(err)
	}
	err = all.Follow(t.Context(), false, func(*events.Event) bool { return true }, func(e *events.Event) error {
		if lost += e.Data.Lost; e.Type != events.Lost {
			got++
		}
		if want := fmt.Sprintf("b1-%d", got+lost); e.Type != events.Lost && e.ID != want {
			return fmt.Errorf("%s comes where %s belongs", e.ID, want)
		}
		return nil
	})
	if err != nil || got+lost != 40_003 || got < 16_000 || got > 16_384 {
		t.Errorf("root reads %d, and is told of %d that are lost: %v", got, lost, err)
	}
}

// Many users together leave what root and the host have a part of their own.
func TestKeptHasAReserve(t *testing.T) {
	b := newBus(nil)
	for range 4000 {
		b.Emit(t.Context(), events.Event{Type: events.EngineUp, Scope: events.Scope{Host: true}})
	}
	for n := range 60_000 {
		b.Emit(t.Context(), of(1+uint32(n%300)))
	}
	host := 0
	for _, e := range read(t, b, "") {
		if e.Scope.Host {
			host++
		}
	}
	if host != 4000 {
		t.Errorf("%d of 4000 events of the host are kept", host)
	}
}

// A reader of one user's events is told how many of those it missed, and of no others'.
func TestSlowReaderOfOne(t *testing.T) {
	b := newBus(nil)
	b.Emit(t.Context(), of(1))
	r, err := b.ReadOf(1, events.Since{})
	if err != nil {
		t.Fatal(err)
	}
	for range 30_000 {
		b.Emit(t.Context(), of(1))
		b.Emit(t.Context(), of(2))
	}
	var got, lost uint64
	mine := func(e *events.Event) bool { return e.Scope.Owner == 1 }
	if err := r.Follow(t.Context(), false, mine, func(e *events.Event) error {
		if lost += e.Data.Lost; e.Type != events.Lost {
			got++
		}
		return nil
	}); err != nil || got+lost != 30_001 || got < 8000 {
		t.Errorf("%d read, %d lost, %v", got, lost, err)
	}
}

// A reader that is too slow is told how many events it missed. Neither the writer nor
// another reader waits for it.
func TestSlowReader(t *testing.T) {
	b := newBus(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck, goOn := make(chan struct{}), make(chan struct{})
	var slow, fast, lost uint64
	var done sync.WaitGroup
	follow := func(yield func(*events.Event) error) {
		r, err := b.Read(events.Since{})
		if err != nil {
			t.Error(err)
		}
		done.Go(func() { _ = r.Follow(ctx, true, all, yield) })
	}
	const total = 50_000
	caughtUp := make(chan struct{})
	follow(func(e *events.Event) error {
		if slow == 0 && lost == 0 {
			close(stuck)
			<-goOn
		}
		if e.Type == events.Lost {
			lost += e.Data.Lost
		} else {
			slow++
		}
		if slow+lost == total {
			return io.EOF
		}
		return nil
	})
	b.Emit(ctx, events.Event{Type: events.EngineUp})
	<-stuck
	follow(func(*events.Event) error {
		if fast++; fast == total {
			close(caughtUp)
			return io.EOF
		}
		return nil
	})
	for i := 1; i < total; i++ {
		b.Emit(ctx, events.Event{Type: events.EngineUp})
		if i%1000 == 0 { // the fast one shares processors with everybody
			time.Sleep(time.Millisecond)
		}
	}
	select {
	case <-caughtUp:
	case <-time.After(20 * time.Second):
		t.Fatal("the fast reader waits for the slow one")
	}
	close(goOn)
	done.Wait()
	if lost == 0 || slow+lost != total {
		t.Errorf("the slow reader got %d and was told of %d lost, of %d", slow, lost, total)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	b := newBus(nil)
	r, err := b.Read(events.Since{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrClosedPipe)
	if err := r.Follow(ctx, true, all, func(*events.Event) error { return nil }); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

func TestFilters(t *testing.T) {
	d := events.Data{SandboxID: "id1", Name: "agent", Caller: "uid 1000", Verdict: "refused"}
	e := &events.Event{Type: events.NetworkTried, Data: d}
	for terms, want := range map[string]bool{
		"": true, "type=network.tried": true, "type=network.*": true, "type=run.caisson.network.tried": true, "type=exec.*": false,
		"type=exec.*,type=network.*": true, "sandbox=agent": true, "sandbox=id1": true, "sandbox=id": false,
		"sandbox=agent,verdict=refused": true, "sandbox=agent,verdict=allowed": false, "caller=uid 1000": true,
	} {
		f, err := events.ParseFilter(slices.DeleteFunc(strings.Split(terms, ","), func(s string) bool { return s == "" }))
		if err != nil {
			t.Fatalf("%q: %v", terms, err)
		}
		if f.Takes(e) != want {
			t.Errorf("%q takes it: %v, want %v", terms, !want, want)
		}
	}
	for term, says := range map[string]string{
		"agent": "KEY=VALUE", "type=": "KEY=VALUE", "typ=exec.*": `did you mean "type"`, "type=exec.begun": "no event has the type", "type=[": "no event has the type", "=x": "there is no key",
	} {
		_, err := events.ParseFilter([]string{term})
		if sbxerr.Of(err) != sbxerr.EventsFilter || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", term, err)
		}
	}
	if _, err := events.ParseFilter(slices.Repeat([]string{"exec=1"}, 65)); sbxerr.Of(err) != sbxerr.EventsFilter {
		t.Errorf("65 terms: %v", err)
	}
}

// Announce refuses only where a record is required.
func TestAnnounce(t *testing.T) {
	k := &kept{failing: sbxerr.New(sbxerr.AuditWrite, "test", "no space")}
	b := newBus(k)
	if err := b.Announce(t.Context(), events.Event{Type: events.ExecStarted}); err != nil {
		t.Errorf("not required: %v", err)
	}
	k.required = true
	if err := b.Announce(t.Context(), events.Event{Type: events.ExecStarted}); sbxerr.Of(err) != sbxerr.AuditWrite {
		t.Errorf("required: %v", err)
	}
	if got := read(t, b, ""); len(got) != 1 {
		t.Errorf("readers see what was refused: %v", ids(got))
	}
	if err := b.Confirm(t.Context(), events.Event{Type: events.FileRead}); sbxerr.Of(err) != sbxerr.AuditWrite || len(read(t, b, "")) != 2 {
		t.Errorf("what happened, required: %v", err)
	}
	k.failing = nil
	if err := b.Announce(t.Context(), events.Event{Type: events.ExecStarted}); err != nil || len(k.lines) != 1 {
		t.Errorf("written again: %v", err)
	}
}

func BenchmarkEmit(b *testing.B) {
	bus := newBus(nil)
	d := events.Data{SandboxID: "abcdefghijklmnopqrstuvwxyz", Name: "agent"}
	d.SetArgs([]string{"python3", "-c", "print(1)"}, []string{"PATH=/bin", "HOME=/home"})
	for b.Loop() {
		bus.Emit(b.Context(), events.Event{Type: events.ExecStarted, Data: d})
	}
}

// BenchmarkFollowers emits 5,000 events a second to 100 readers, which all get all.
func BenchmarkFollowers(b *testing.B) {
	const readers, rate = 100, 5000
	bus := newBus(nil)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var got, lost atomic.Int64
	var done sync.WaitGroup
	for range readers {
		r, err := bus.Read(events.Since{})
		if err != nil {
			b.Fatal(err)
		}
		done.Go(func() {
			_ = r.Follow(ctx, true, all, func(e *events.Event) error { got.Add(1); lost.Add(int64(e.Data.Lost)); return nil })
		})
	}
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	begin, n := time.Now(), int64(0)
	for b.Loop() {
		bus.Emit(ctx, events.Event{Type: events.EngineUp})
		n++
		time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / rate)))
	}
	for got.Load() < n*readers && lost.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(begin)
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*cpu.Seconds()/took.Seconds(), "%core")
	b.ReportMetric(float64(lost.Load()), "lost")
	cancel()
	done.Wait()
}
