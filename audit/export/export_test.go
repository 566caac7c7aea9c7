package export_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/audit/export"
)

const patience = time.Minute

type log struct {
	*audit.Log
	dir string
}

func openLog(t *testing.T, o audit.Options) log {
	t.Helper()
	o.Dir, o.Name = cmp.Or(o.Dir, filepath.Join(t.TempDir(), "audit")), "test"
	l, _, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return log{l, o.Dir}
}

func record(t *testing.T, l log, n, size int) {
	t.Helper()
	for range n {
		object := fmt.Sprintf(`{"type":"run.caisson.exec.ended","time":"2026-01-02T03:04:05.678901Z","text":"%s"}`, strings.Repeat("x", size))
		if err := l.Record([]byte(object), false); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs an exporter. The function that it returns stops it.
func start(t *testing.T, l log, r export.Receiver) (*export.Exporter, func()) {
	t.Helper()
	r.Hostname, r.Facility = "host", 10
	e := export.New(export.Options{Dir: l.dir, Newest: l.Newest, Receiver: r, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return e, stop
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// Records from before the receiver was there arrive, too. Whoever stops in order and
// starts again repeats nothing over a stream.
func TestAwayAtFirst(t *testing.T) {
	for _, kind := range []export.Kind{export.TCP, export.Unix, export.Journald} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := audit.Options{SegmentBytes: 8 << 10}
			l, s := openLog(t, o), newSink(t, kind)
			record(t, l, 50, 200)
			e, stop := start(t, l, s.receiver())
			await(t, "away", func() bool { return e.Status().Away != nil })
			if st := e.Status(); st.Lag != 50 || sbxerr.Of(st.Away) != sbxerr.ExportAway {
				t.Errorf("%+v", st)
			}
			s.listen()
			await(t, "back", func() bool { return s.has(50) && e.Status().Away == nil && e.Status().Lag == 0 })
			record(t, l, 50, 200)
			await(t, "the new ones", func() bool { return s.has(100) })
			stop()
			record(t, l, 10, 200)
			start(t, l, s.receiver())
			await(t, "those of the next exporter", func() bool { return s.has(110) })
			if repeated := s.check(110); repeated > 1 || repeated > 0 && kind != export.Journald {
				t.Errorf("%d records are repeated", repeated)
			}
		})
	}
}

// A receiver that ends again and again, with bytes that it never read, loses no record.
func TestCut(t *testing.T) {
	for _, kind := range []export.Kind{export.TCP, export.Unix, export.Journald} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			l, s := openLog(t, audit.Options{}), newSink(t, kind)
			s.listen()
			_, stop := start(t, l, s.receiver())
			const n = 3000
			for i := range 3 {
				s.pause()
				record(t, l, n/3, 500)
				time.Sleep(500 * time.Millisecond) // they lie in buffers
				s.cut()
				s.listen()
				await(t, "after the cut", func() bool { return s.has(uint64((i + 1) * n / 3)) })
			}
			stop()
			t.Logf("%d of %d records are repeated", s.check(n), n)
		})
	}
}

// A receiver that reads nothing delays nobody who records, and gets everything later.
func TestSlow(t *testing.T) {
	l, s := openLog(t, audit.Options{SegmentBytes: 4 << 20}), newSink(t, export.TCP)
	s.listen()
	s.pause()
	e, _ := start(t, l, s.receiver())
	began := time.Now()
	record(t, l, 40_000, 500) // more than the buffers hold
	if took := time.Since(began); took > patience {
		t.Errorf("recording took %v", took)
	}
	time.Sleep(time.Second)
	if e.Status().Lag == 0 {
		t.Error("all is sent: the receiver is not slow")
	}
	s.resume()
	await(t, "everything", func() bool { return s.has(40_000) })
	if repeated := s.check(40_000); repeated > 0 {
		t.Errorf("%d records are repeated", repeated)
	}
}

// A record that no datagram holds reaches the journal, too.
func TestLargeRecord(t *testing.T) {
	for _, kind := range []export.Kind{export.TCP, export.Journald} {
		l, s := openLog(t, audit.Options{}), newSink(t, kind)
		s.listen()
		start(t, l, s.receiver())
		record(t, l, 1, 900<<10)
		record(t, l, 1, 10)
		await(t, "both", func() bool { return s.has(2) })
		s.check(2)
	}
}

// What retention removed before it was sent is told.
func TestGap(t *testing.T) {
	dir, s := t.TempDir(), newSink(t, export.TCP)
	full := audit.Options{Dir: dir, Name: "test", SegmentBytes: 2 << 10}
	first, _, err := audit.Open(full)
	if err != nil {
		t.Fatal(err)
	}
	record(t, log{first, dir}, 190, 100)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	full.MaxBytes = 8 << 10
	l := openLog(t, full)
	await(t, "retention", func() bool {
		_, err := os.Stat(filepath.Join(dir, "00000000000000000001.jsonl"))
		return os.IsNotExist(err)
	})
	e, _ := start(t, l, s.receiver())
	record(t, l, 10, 100)
	s.listen()
	await(t, "the newest", func() bool { return s.has(200) })
	if st, got := e.Status(), s.count(); st.Skipped == 0 || st.Skipped+got != 200 {
		t.Errorf("%+v, %d arrived", st, got)
	}
}

// A cursor that nobody can read repeats, and loses nothing; so does one past the end.
func TestBadCursor(t *testing.T) {
	for _, text := range []string{"nonsense", "", "999\n"} {
		l, s := openLog(t, audit.Options{}), newSink(t, export.TCP)
		s.listen()
		record(t, l, 5, 10)
		_, stop := start(t, l, s.receiver())
		await(t, "the first", func() bool { return s.has(5) })
		stop()
		files, err := filepath.Glob(filepath.Join(l.dir, "export-*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stop = start(t, l, s.receiver())
		record(t, l, 5, 10)
		await(t, "all", func() bool { return s.has(10) })
		stop()
		s.check(10)
	}
}

// Datagrams get lost with their receiver, so a socket for them is refused by name.
func TestDatagramSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	c, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l := openLog(t, audit.Options{})
	record(t, l, 1, 10)
	e, _ := start(t, l, export.Receiver{Kind: export.Unix, Address: path})
	await(t, "refused", func() bool { return e.Status().Away != nil })
	if err := e.Status().Away; !strings.Contains(err.Error(), "datagrams") || !strings.Contains(err.Error(), syscall.EPROTOTYPE.Error()) {
		t.Error(err)
	}
}

// Over TLS records go only to a receiver whose certificate is known.
func TestTLS(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	known := x509.NewCertPool()
	known.AddCert(certified.Certificate())
	l, s := openLog(t, audit.Options{}), newSink(t, export.TLS)
	listener, err := tls.Listen("tcp", s.address, &tls.Config{Certificates: certified.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	s.accept(listener)
	record(t, l, 20, 100)
	r := s.receiver()
	r.TLS = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"}
	e, stop := start(t, l, r)
	await(t, "refused", func() bool { return e.Status().Away != nil })
	stop()
	if err := e.Status().Away; !strings.Contains(err.Error(), "certificate") || s.has(20) {
		t.Errorf("an unknown certificate: %v", err)
	}
	r.TLS = &tls.Config{RootCAs: known, ServerName: "example.com"}
	_, stop = start(t, l, r)
	await(t, "all", func() bool { return s.has(20) })
	stop()
	start(t, l, r)
	record(t, l, 1, 100)
	await(t, "one more", func() bool { return s.has(21) })
	if repeated := s.check(21); repeated > 0 {
		t.Errorf("%d records are repeated", repeated)
	}
}
