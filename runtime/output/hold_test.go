package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// slow is a writer that takes its time, and a part of which another goroutine can see.
type slow struct {
	bytes.Buffer
	pause time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.pause) // the slow reader of the test
	return s.Buffer.Write(p)
}

// A reader that holds its place gets every byte, however small the limit, the room and
// its own speed; the command waits for it, and the disk holds little.
func TestHold(t *testing.T) {
	const size = 32 << 20
	for name, o := range map[string]Options{
		"small limit":   {Limit: 2},
		"usual limit":   {Limit: 10 << 20},
		"a full room":   {Limit: 10 << 20, Room: NewRoom(1)},
		"a large limit": {Limit: 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			o.Path = filepath.Join(t.TempDir(), "stdout")
			s := createOf(t, o)
			held := s.Hold(0)
			r, w := pipe(t)
			filled := filling(s, r)
			count := child(t, "count", []string{fmt.Sprint(size)}, w)
			w.Close()
			reader := &slow{pause: time.Millisecond}
			followed := make(chan error, 1)
			go func() { followed <- held.Follow(t.Context(), reader, true) }()
			var most int64
			for ended := false; !ended; {
				select {
				case err := <-filled:
					if err != nil {
						t.Fatal(err)
					}
					ended = true
				case <-time.After(100 * time.Microsecond):
				}
				most = max(most, onDisk(t, o.Path))
			}
			s.Finish()
			if err := within(t, "all bytes", followed); err != nil {
				t.Error(err)
			}
			if err := count.Wait(); err != nil {
				t.Error(err)
			}
			same(t, "the stream", reader.String(), string(counter(0, size)))
			if allowed := o.Limit + s.bound.step() + window + 2*MaxChunk + 4*page; most > allowed {
				t.Errorf("%d bytes on the disk, allowed are %d", most, allowed)
			}
			held.Release()
			if o.Room == nil {
				same(t, "what is kept", follow(t, s, 0), want(counter(0, size), o.Limit, 0))
			}
		})
	}
}

// A command waits for a reader that has stopped, until that lets go of its place.
func TestStoppedReader(t *testing.T) {
	s := create(t, 100)
	held := s.Hold(0)
	r, w := pipe(t)
	filled := filling(s, r)
	flood := child(t, "flood", []string{fmt.Sprint(8 << 20)}, w)
	w.Close()
	eventually(t, "a window", func() bool { n, _ := s.Total(); return n >= window })
	time.Sleep(50 * time.Millisecond) // in which all would be read, if nothing held it back
	if n, _ := s.Total(); n > window+MaxChunk {
		t.Errorf("the pipe was emptied up to %d", n)
	}
	if err := s.Settle(t.Context()); err != nil { // which does not wait for a reader
		t.Error(err)
	}
	held.Release()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	if err := flood.Wait(); err != nil {
		t.Error(err)
	}
	s.Finish()
	if n := keptOf(s); n != 100 {
		t.Errorf("%d bytes are kept", n)
	}
}

// Fill ends with its context also while it waits for a reader.
func TestFillEndsInAWait(t *testing.T) {
	s := create(t, 100)
	s.Hold(0)
	r, w := pipe(t)
	child(t, "flood", []string{fmt.Sprint(2 * window)}, w)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	filled := make(chan error, 1)
	go func() { filled <- s.Fill(ctx, r) }()
	eventually(t, "a window", func() bool { n, _ := s.Total(); return n >= window })
	cancel(cause)
	if err := within(t, "end", filled); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// A process that fills is killed; the next one goes on where the reader was.
func TestHoldAfterARestart(t *testing.T) {
	data := random(3 << 20)
	s := create(t, 100)
	held := s.Hold(0)
	var got bytes.Buffer
	for rest := data; len(rest) > 0; {
		n := min(100_000, len(rest))
		write(t, s, rest[:n])
		rest = rest[n:]
		if len(data)-len(rest) < 5<<19 { // the rest is in the window
			if err := held.Follow(t.Context(), &got, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := open(t, s.o.Path, 100)
	parked := again.HoldAll()
	next := again.Hold(int64(got.Len()))
	parked.Release()
	again.Finish()
	if err := next.Follow(t.Context(), &got, true); err != nil {
		t.Error(err)
	}
	same(t, "the stream", got.String(), string(data))
	next.Release()
	same(t, "what is kept", follow(t, again, 0), want(data, 100, 0))
}

// What nobody reads or keeps is read slowly; what somebody reads is not.
func TestDiscard(t *testing.T) {
	for _, held := range []bool{false, true} {
		s := createOf(t, Options{Path: filepath.Join(t.TempDir(), "stdout"), Limit: 100, Discard: rate.NewLimiter(1, MaxChunk)})
		var followed chan error
		if held {
			h := s.Hold(0)
			followed = make(chan error, 1)
			go func() { followed <- h.Follow(t.Context(), io.Discard, true) }()
		}
		r, w := pipe(t)
		ctx, stop := context.WithCancel(t.Context())
		filled := make(chan error, 1)
		go func() { filled <- s.Fill(ctx, r) }()
		flood := child(t, "flood", []string{fmt.Sprint(4 << 20)}, w)
		w.Close()
		if held {
			if err := within(t, "end", filled); err != nil {
				t.Error(err)
			}
			s.Finish()
			if err := within(t, "all bytes", followed); err != nil {
				t.Error(err)
			}
			if err := flood.Wait(); err != nil {
				t.Error(err)
			}
		} else {
			eventually(t, "a burst", func() bool { n, _ := s.Total(); return n > 100 })
			time.Sleep(50 * time.Millisecond) // in which all would be read, if nothing paced it
			if n, _ := s.Total(); n > 100+3*MaxChunk {
				t.Errorf("%d bytes were read that nobody keeps", n)
			}
		}
		stop()
	}
}
