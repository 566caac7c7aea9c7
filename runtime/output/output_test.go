package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newStore(t *testing.T, limit int64) *Store {
	t.Helper()
	s, err := New(filepath.Join(t.TempDir(), "stdout"), limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func write(t *testing.T, s *Store, data []byte) {
	t.Helper()
	if n, err := s.Write(data); n != len(data) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

func follow(t *testing.T, s *Store) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Follow(t.Context(), &b, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A stream of any length, in writes of any size, is whole up to the limit, and
// past it is its first half, a mark with the true count, and its last half.
func TestKeepsHeadAndTail(t *testing.T) {
	const limit = 101 // odd: the halves differ
	for _, total := range []int{0, 1, 50, 51, 52, 100, 101, 102, 151, 152, 153, 400, 1000} {
		for _, step := range []int{1, 7, 64, 1000} {
			t.Run(fmt.Sprintf("%d by %d", total, step), func(t *testing.T) {
				data := random(total)
				s := newStore(t, limit)
				for rest := data; len(rest) > 0; {
					n := min(step, len(rest))
					write(t, s, rest[:n])
					rest = rest[n:]
				}
				s.Finish()
				want, truncated := string(data), false
				if total > limit {
					want, truncated = string(data[:51])+Mark(int64(total-101))+string(data[total-50:]), true
				}
				if got := follow(t, s); got != want {
					t.Errorf("got %d bytes, want %d", len(got), len(want))
				}
				if n, cut := s.Total(); n != int64(total) || cut != truncated {
					t.Errorf("Total = %d, %v", n, cut)
				}
			})
		}
	}
}

func random(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// Bytes up to the limit reach a reader while the command still runs.
func TestStreamsAsItComes(t *testing.T) {
	s := newStore(t, 100)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Follow(t.Context(), w, true) }()
	for _, chunk := range []string{strings.Repeat("a", 50), strings.Repeat("b", 50)} {
		write(t, s, []byte(chunk))
		buf := make([]byte, 50)
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != chunk {
			t.Fatalf("read %q, %v", buf, err)
		}
	}
	write(t, s, []byte(strings.Repeat("c", 200)))
	s.Finish()
	rest := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		rest <- string(b)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got, want := <-rest, Mark(150)+strings.Repeat("c", 50); got != want {
		t.Errorf("after the limit came %q, want %q", got, want)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	s := newStore(t, 100)
	cause := errors.New("the reader left")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	if err := s.Follow(ctx, io.Discard, true); !errors.Is(err, cause) {
		t.Errorf("Follow = %v", err)
	}
	write(t, s, []byte("x"))
	var b bytes.Buffer
	if err := s.Follow(t.Context(), &b, false); err != nil || b.String() != "x" {
		t.Errorf("without waiting: %q, %v", b.String(), err)
	}
}

// A store that cannot keep bytes still counts them and never holds the
// command back.
func TestLostBytesAreCounted(t *testing.T) {
	s, err := New(filepath.Join(t.TempDir(), "absent", "stdout"), 100)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, []byte("hello"))
	s.Finish()
	if n, cut := s.Total(); n != 5 || !cut {
		t.Errorf("Total = %d, %v", n, cut)
	}
	if err := s.Follow(t.Context(), io.Discard, true); !errors.Is(err, os.ErrNotExist) || !errors.Is(s.Lost(), os.ErrNotExist) {
		t.Errorf("Follow = %v, Lost = %v", err, s.Lost())
	}
	if _, err := s.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Finish: %v", err)
	}
}

func TestNoFileWithoutOutput(t *testing.T) {
	s := newStore(t, 100)
	s.Finish()
	if _, err := os.Stat(s.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
	if _, err := New("x", 1); err == nil {
		t.Error("a limit of one byte was accepted")
	}
}
