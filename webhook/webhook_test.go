package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/webhook"
)

const patience = 10 * time.Second

var secret = bytes.Repeat([]byte("k"), 32)

// server takes deliveries, and answers as a test says.
type server struct {
	*httptest.Server
	got chan delivery

	mu     sync.Mutex
	answer http.HandlerFunc // nil: 200
}

type delivery struct {
	header http.Header
	body   []byte
	at     time.Time
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{got: make(chan delivery, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a delivery that breaks off fails its test
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
		s.got <- delivery{r.Header, body, time.Now()}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) answers(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// next is the next delivery, whose signature is checked as a server does.
func (s *server) next(t *testing.T) (e struct {
	ID, Type, SpecVersion string
	Data                  struct {
		SandboxID string `json:"sandbox_id"`
		Lost      int
	}
}) {
	t.Helper()
	select {
	case d := <-s.got:
		id, stamp := d.header.Get("Webhook-Id"), d.header.Get("Webhook-Timestamp")
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", id, stamp, d.body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); d.header.Get("Webhook-Signature") != want {
			t.Errorf("the signature is %q, want %q", d.header.Get("Webhook-Signature"), want)
		}
		if n, err := strconv.ParseInt(stamp, 10, 64); err != nil || d.at.Sub(time.Unix(n, 0)).Abs() > time.Minute {
			t.Errorf("the timestamp is %q (%v)", stamp, err)
		}
		if kind := d.header.Get("Content-Type"); kind != "application/cloudevents+json" {
			t.Errorf("the content type is %q", kind)
		}
		if err := json.Unmarshal(d.body, &e); err != nil || e.ID != id || e.SpecVersion != "1.0" {
			t.Fatalf("%v, ID %q in the header: %s", err, id, d.body)
		}
	case <-time.After(patience):
		t.Fatalf("no delivery within %v", patience)
	}
	return e
}

// none fails if there is a delivery.
func (s *server) none(t *testing.T) {
	t.Helper()
	select {
	case d := <-s.got:
		t.Errorf("delivered: %s", d.body)
	case <-time.After(100 * time.Millisecond):
	}
}

func run(t *testing.T, bus *events.Bus, o webhook.Options) {
	t.Helper()
	o.Secret, o.FirstWait = secret, 10*time.Millisecond
	r, err := bus.Read(events.Since{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		webhook.New(o).Run(ctx, r)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the webhook does not end")
		}
	})
}

func emit(bus *events.Bus, t events.Type, sandbox string) {
	bus.Emit(context.Background(), events.Event{Type: t, Data: events.Data{SandboxID: sandbox}})
}

// TestDelivery: events that the filter takes come signed, in order, from the oldest on.
func TestDelivery(t *testing.T) {
	bus, s := events.New(events.Options{Boot: "b"}), serve(t)
	emit(bus, events.SandboxCreated, "1")
	filter, err := events.ParseFilter([]string{"type=sandbox.*"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, bus, webhook.Options{URL: s.URL, Filter: filter})
	emit(bus, events.ExecStarted, "1")
	for i := 2; i <= 50; i++ {
		emit(bus, events.SandboxCreated, strconv.Itoa(i))
	}
	for i := 1; i <= 50; i++ {
		if e := s.next(t); e.Data.SandboxID != strconv.Itoa(i) || e.Type != "run.caisson.sandbox.created" {
			t.Fatalf("delivery %d is %+v", i, e)
		}
	}
	s.none(t)
}

// TestRetry: while a server fails, the same event comes again, and none after it. What a
// server refuses for good comes once.
func TestRetry(t *testing.T) {
	for _, code := range []int{500, 503, 429, 408} {
		bus, s := events.New(events.Options{Boot: "b"}), serve(t)
		s.answers(status(code))
		run(t, bus, webhook.Options{URL: s.URL})
		emit(bus, events.SandboxCreated, "1")
		emit(bus, events.SandboxCreated, "2")
		for range 4 {
			if e := s.next(t); e.Data.SandboxID != "1" {
				t.Fatalf("status %d: delivered %+v", code, e)
			}
		}
		s.answers(nil)
		e := s.next(t)
		for e.Data.SandboxID == "1" { // once more, or in flight at the change
			e = s.next(t)
		}
		if e.Data.SandboxID != "2" {
			t.Errorf("status %d: then came %+v", code, e)
		}
	}
	for _, code := range []int{301, 400, 401, 404, 410} {
		bus, s := events.New(events.Options{Boot: "b"}), serve(t)
		elsewhere := serve(t)
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(code)
		})
		run(t, bus, webhook.Options{URL: s.URL})
		emit(bus, events.SandboxCreated, "1")
		emit(bus, events.SandboxCreated, "2")
		if a, b := s.next(t), s.next(t); a.Data.SandboxID != "1" || b.Data.SandboxID != "2" {
			t.Errorf("status %d: delivered %+v and %+v", code, a, b)
		}
		s.none(t)
		elsewhere.none(t)
	}
}

// TestHangs: a server that takes the request and says nothing, or says it without end,
// holds a delivery for the timeout alone.
func TestHangs(t *testing.T) {
	bus, s := events.New(events.Options{Boot: "b"}), serve(t)
	hung := make(chan struct{}, 10)
	s.answers(func(_ http.ResponseWriter, r *http.Request) {
		hung <- struct{}{}
		<-r.Context().Done()
	})
	run(t, bus, webhook.Options{URL: s.URL, Timeout: 100 * time.Millisecond})
	emit(bus, events.SandboxCreated, "1")
	for range 2 {
		select {
		case <-hung:
		case <-time.After(patience):
			t.Fatal("there is no second attempt")
		}
	}
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20)) // the reader leaves
	})
	for e := s.next(t); e.Data.SandboxID != "1"; e = s.next(t) {
		t.Fatalf("delivered %+v", e)
	}
}

// TestLost: events that are dropped while the server fails are told as one event, and
// emitting waits for nobody.
func TestLost(t *testing.T) {
	bus, s := events.New(events.Options{Boot: "b"}), serve(t)
	s.answers(status(500))
	run(t, bus, webhook.Options{URL: s.URL})
	emit(bus, events.SandboxCreated, "1")
	s.next(t)
	const many = 40_000 // more than the bus keeps
	begun := time.Now()
	for range many {
		emit(bus, events.ExecStarted, "many")
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("emitting took %v", took)
	}
	s.answers(nil)
	lost := 0
	for lost == 0 {
		e := s.next(t)
		lost = e.Data.Lost
		if lost > 0 && e.Type != "run.caisson.events.lost" {
			t.Errorf("lost is told by %+v", e)
		}
	}
	if lost < many-16384-1 || lost >= many {
		t.Errorf("%d of %d events are lost", lost, many)
	}
}

// TestLostOfOthers: a user who makes many events while the server fails drops none of other
// users'.
func TestLostOfOthers(t *testing.T) {
	bus, s := events.New(events.Options{Boot: "b"}), serve(t)
	s.answers(status(500))
	run(t, bus, webhook.Options{URL: s.URL})
	of := func(owner uint32, kind events.Type, sandbox string) {
		bus.Emit(context.Background(), events.Event{Type: kind, Data: events.Data{SandboxID: sandbox}, Scope: events.Scope{Owner: owner}})
	}
	of(1, events.SandboxCreated, "first")
	s.next(t)
	of(2, events.SandboxCreated, "modest")
	for range 40_000 { // more than the bus keeps
		of(1, events.ExecStarted, "greedy")
	}
	s.answers(nil)
	lost := 0
	for e := s.next(t); e.Data.SandboxID != "modest"; e = s.next(t) {
		lost += e.Data.Lost
		if e.Data.SandboxID == "greedy" {
			t.Fatal("the modest user's event is lost")
		}
	}
	for e := s.next(t); lost == 0; e = s.next(t) {
		lost += e.Data.Lost
	}
	if lost < 40_000-16384 {
		t.Errorf("the control: %d events are lost", lost)
	}
}

// TestLog: the log says once that deliveries wait, and nothing of the path, which may be a
// secret.
func TestLog(t *testing.T) {
	bus, s := events.New(events.Options{Boot: "b"}), serve(t)
	s.answers(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	var log text
	run(t, bus, webhook.Options{URL: s.URL + "/path-that-is-secret", Log: slog.New(slog.NewTextHandler(&log, nil))})
	emit(bus, events.SandboxCreated, "1")
	time.Sleep(300 * time.Millisecond) // of which each attempt takes at most some
	s.answers(nil)
	s.next(t)
	for end := time.Now().Add(patience); !strings.Contains(log.String(), "takes events again") && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if said := log.String(); strings.Count(said, "deliveries wait") != 1 || strings.Count(said, "takes events again") != 1 || strings.Contains(said, "secret") {
		t.Errorf("the log is:\n%s", said)
	}
}

// text is written and read at the same time.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

func TestParseSecret(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString(secret)
	if got, err := webhook.ParseSecret("whsec_" + encoded); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", encoded, "whsec_", "whsec_short", "whsec_" + encoded + "!", "whsec_" + base64.StdEncoding.EncodeToString(secret[:23]), "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat(secret, 3))} {
		if _, err := webhook.ParseSecret(bad); err == nil || len(bad) > 10 && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
