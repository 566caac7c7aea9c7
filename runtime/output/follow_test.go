package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// signal is a writer that says that it was written to.
type signal chan string

func (s signal) Write(p []byte) (int, error) {
	s <- string(p)
	return len(p), nil
}

func TestFollowEnds(t *testing.T) {
	s := create(t, 100)
	cause := errors.New("the reader left")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	if err := copyTo(s, ctx, io.Discard, 0, true); !errors.Is(err, cause) {
		t.Errorf("Follow = %v", err)
	}
	write(t, s, []byte("xyz"))
	if err := copyTo(s, ctx, io.Discard, 0, true); !errors.Is(err, cause) {
		t.Errorf("with bytes to read: %v", err)
	}
	var b bytes.Buffer
	if err := copyTo(s, t.Context(), &b, 1, false); err != nil || b.String() != "yz" {
		t.Errorf("without waiting: %q, %v", b.String(), err)
	}
	closed, w := io.Pipe()
	closed.Close()
	if err := copyTo(s, t.Context(), w, 0, true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("to a closed writer: %v", err)
	}
}

// A reader ahead of the stream gets what comes from its offset on.
func TestFollowAhead(t *testing.T) {
	s := create(t, 100)
	got := make(signal, 1)
	done := make(chan error, 1)
	go func() { done <- copyTo(s, t.Context(), got, 5, true) }()
	write(t, s, []byte("012"))
	write(t, s, []byte("3456"))
	same(t, "from 5", within(t, "bytes", got), "56")
	s.Finish()
	if err := within(t, "end", done); err != nil {
		t.Error(err)
	}
}

// skipping is a writer that keeps count of the stream's offset.
type skipping struct {
	bytes.Buffer
	skipped []int64
}

func (s *skipping) Skip(n int64) error {
	if s.skipped = append(s.skipped, n); n == 150 {
		return io.ErrShortWrite
	}
	return nil
}

func TestSkipper(t *testing.T) {
	s := create(t, 100)
	write(t, s, []byte(strings.Repeat("a", 300)))
	s.Finish()
	var w skipping
	if err := copyTo(s, t.Context(), &w, 10, true); err != nil || w.Len() != 90 || len(w.skipped) != 1 || w.skipped[0] != 200 {
		t.Errorf("%d bytes, skipped %v, %v", w.Len(), w.skipped, err)
	}
	if err := copyTo(s, t.Context(), &w, 100, true); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the skipper's error became %v", err)
	}
}

// A store that is closed under its readers ends them: cleanly those that have
// had all of a finished stream, with a code all others.
func TestCloseUnderReaders(t *testing.T) {
	for i := range 200 {
		s := create(t, 1<<20)
		data := random(200_000)
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				var b bytes.Buffer
				err := copyTo(s, t.Context(), &b, 0, true)
				if b.Len() > len(data) || !bytes.Equal(b.Bytes(), data[:b.Len()]) {
					t.Error("wrong bytes")
				}
				switch {
				case err == nil && b.Len() == len(data):
				case errors.Is(err, sbxerr.State) && !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "file already closed"):
				default:
					t.Errorf("after %d of %d bytes: %v", b.Len(), len(data), err)
				}
			})
		}
		write(t, s, data)
		if i%2 == 0 {
			s.Finish()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		readers.Wait()
	}
}

// Readers that do not wait see, at every instant of a flood, a part of the
// stream, a true mark and the bytes behind it; never a hole's zeros.
func TestOvertakenReaders(t *testing.T) {
	const size, limit = 32 << 20, 1 << 20
	s := create(t, limit)
	r, w := pipe(t)
	count := child(t, "count", []string{fmt.Sprint(size)}, w)
	w.Close()
	filled := filling(s, r)
	var ended atomic.Bool
	var readers sync.WaitGroup
	for k := range int64(3) {
		readers.Go(func() {
			for !ended.Load() && !t.Failed() {
				var b bytes.Buffer
				if err := copyTo(s, t.Context(), &b, k*limit*3/8, false); err != nil {
					t.Error(err)
				}
				if err := placed(b.Bytes(), k*limit*3/8); err != nil {
					t.Error(err)
				}
			}
		})
	}
	err := within(t, "end", filled)
	ended.Store(true)
	if err != nil {
		t.Error(err)
	}
	if err := count.Wait(); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

// placed checks that b is the counter from an offset on, but for marks.
func placed(b []byte, from int64) error {
	for at := from; len(b) > 0; {
		run := b
		i := bytes.Index(b, []byte("\n[caisson: "))
		if i >= 0 {
			run = b[:i]
		}
		if end := at + int64(len(run)); !bytes.Equal(run, counter(at, end)) {
			return fmt.Errorf("wrong bytes between %d and %d", at, end)
		}
		at, b = at+int64(len(run)), b[len(run):]
		if i < 0 {
			return nil
		}
		var skipped int64
		if _, err := fmt.Sscanf(string(b[:min(len(b), 60)]), "\n[caisson: %d bytes left out]\n", &skipped); err != nil || skipped <= 0 {
			return fmt.Errorf("a bad mark at %d: %w", at, err)
		}
		at, b = at+skipped, b[len(Mark(skipped)):]
	}
	return nil
}

// Many readers get every byte, and hold neither the writer nor memory while
// they wait.
func TestManyReaders(t *testing.T) {
	const readers, size = 100, 4 << 20
	s := create(t, 1<<30)
	r, w := pipe(t)
	filled := filling(s, r)
	sums := make(chan error, readers)
	data := counter(0, size)
	for range readers {
		go func() {
			c := &checker{want: data}
			sums <- errors.Join(copyTo(s, t.Context(), c, 0, true), c.err())
		}()
	}
	count := child(t, "count", []string{fmt.Sprint(size)}, w)
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	if err := count.Wait(); err != nil {
		t.Error(err)
	}
	s.Finish()
	for range readers {
		if err := within(t, "reader", sums); err != nil {
			t.Error(err)
		}
	}
}

// checker is a writer that wants to be told what it knows.
type checker struct {
	want []byte
	bad  error
}

func (c *checker) Write(p []byte) (int, error) {
	if c.bad == nil && !bytes.HasPrefix(c.want, p) {
		c.bad = fmt.Errorf("wrong bytes, %d before the end", len(c.want))
	}
	c.want = c.want[min(len(p), len(c.want)):]
	return len(p), nil
}

func (c *checker) err() error {
	if len(c.want) > 0 {
		return errors.Join(c.bad, fmt.Errorf("%d bytes are missing", len(c.want)))
	}
	return c.bad
}

// A reader that waits holds no buffer, and one that is not read from holds
// one.
func TestReadersAreCheap(t *testing.T) {
	const readers = 200
	s := create(t, 1<<20)
	write(t, s, []byte("x"))
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	started := make(signal, readers)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() { _ = copyTo(s, ctx, started, 0, true) })
	}
	for range readers {
		within(t, "byte", started)
	}
	if grown := heap() - before; grown > readers*(smallBuffer/2) {
		t.Errorf("%d readers that wait hold %d bytes", readers, grown)
	}
	cancel()
	all.Wait()
}

func heap() int64 {
	for range 3 { // a pool is emptied by the second
		goruntime.GC()
	}
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestFollowGoesOn stops a reader in the middle, and goes on with another.
func TestFollowGoesOn(t *testing.T) {
	s := create(t, 1<<20)
	write(t, s, []byte("one two "))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if next, err := s.Follow(ctx, io.Discard, 4, true); next != 4 || !errors.Is(err, context.Canceled) {
		t.Errorf("at %d, %v", next, err)
	}
	var b strings.Builder
	next, err := s.Follow(t.Context(), &b, 0, false)
	if next != 8 || err != nil {
		t.Errorf("at %d, %v", next, err)
	}
	write(t, s, []byte("three"))
	s.Finish()
	if next, err = s.Follow(t.Context(), &b, next, true); next != 13 || err != nil || b.String() != "one two three" {
		t.Errorf("at %d, %v: %q", next, err, b.String())
	}
}
