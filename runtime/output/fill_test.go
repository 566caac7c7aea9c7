package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var past, never = time.Unix(1, 0), time.Time{}

func TestFillEnds(t *testing.T) {
	s := create(t, 100)
	r, w := pipe(t)
	write(t, w, []byte("one "))
	if err := r.SetReadDeadline(past); err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(context.Background(), r); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past its deadline: %v", err)
	}
	if err := r.SetReadDeadline(never); err != nil {
		t.Fatal(err)
	}
	filled := filling(s, r)
	eventually(t, "the first bytes", func() bool { n, _ := s.Total(); return n == 4 })
	if err := s.Fill(context.Background(), r); !errors.Is(err, sbxerr.Internal) || !strings.Contains(err.Error(), "filled already") {
		t.Errorf("a second Fill: %v", err)
	}
	if err := r.SetReadDeadline(past); err != nil { // while it waits
		t.Fatal(err)
	}
	if err := within(t, "end", filled); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at its deadline: %v", err)
	}
	if err := r.SetReadDeadline(never); err != nil {
		t.Fatal(err)
	}
	filled = filling(s, r)
	write(t, w, []byte("two"))
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Errorf("at the end of the pipe: %v", err)
	}
	s.Finish()
	same(t, "all", follow(t, s, 0), "one two")
}

func TestFillOfClosed(t *testing.T) {
	s := create(t, 100)
	r, w := pipe(t)
	filled := filling(s, r)
	write(t, w, []byte("x"))
	eventually(t, "a byte", func() bool { n, _ := s.Total(); return n == 1 })
	r.Close()
	if err := within(t, "end", filled); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a pipe that was closed: %v", err)
	}
	if err := s.Fill(context.Background(), r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed pipe: %v", err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Fill(context.Background(), f); !errors.Is(err, sbxerr.Internal) || !strings.Contains(err.Error(), "is not a pipe") {
		t.Errorf("of no pipe: %v", err)
	}

	r, w = pipe(t)
	filled = filling(s, r)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, w, []byte("kept by the pipe"))
	if err := within(t, "end", filled); !errors.Is(err, sbxerr.State) {
		t.Errorf("of a closed store: %v", err)
	}
	got := make([]byte, 16)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "kept by the pipe" {
		t.Errorf("a closed store took bytes from the pipe: %q is left, %v", got, err)
	}
}

// Whoever shares the description of the pipe can clear its O_NONBLOCK flag.
// Neither Fill nor Settle may then wait in a system call.
func TestFlagsOfTheOtherSide(t *testing.T) {
	s := create(t, 1000)
	r, w := pipe(t)
	conn, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	clear := func(fd uintptr) { err = unix.SetNonblock(int(fd), false) }
	if cerr := conn.Control(clear); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	filled := filling(s, r)
	write(t, w, []byte("abc"))
	eventually(t, "bytes", func() bool { n, _ := s.Total(); return n == 3 })
	if err := s.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.SetReadDeadline(past); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "end at the deadline", filled); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// Settle returns with all that was written before it, while the pipe is kept
// open, also where nobody else fills the store just now.
func TestSettle(t *testing.T) {
	s := create(t, 1<<20)
	r, w := pipe(t)
	early := make(chan error, 1)
	go func() { early <- s.Settle(t.Context()) }() // waits for Fill to be called
	write(t, w, []byte("0"))
	filled := filling(s, r)
	if err := within(t, "Settle", early); err != nil {
		t.Error(err)
	}
	for i := range 1000 {
		write(t, w, bytes.Repeat([]byte{'0' + byte(i%10)}, 1+i%700))
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, _ := s.Total(); n != expected(i) {
			t.Fatalf("%d: %d bytes are in the store, want %d", i, n, expected(i))
		}
	}
	if err := r.SetReadDeadline(past); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "end", filled); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	write(t, w, []byte("x"))
	if err := s.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	if n, _ := s.Total(); n != expected(999)+1 {
		t.Errorf("without Fill: %d", n)
	}
	if err := r.SetReadDeadline(never); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := s.Fill(context.Background(), r); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := s.Settle(t.Context()); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func expected(i int) (n int64) {
	for k := range i + 1 {
		n += int64(1 + k%700)
	}
	return n + 1
}

// A child that floods the pipe does not hold Settle back.
func TestSettleInAFlood(t *testing.T) {
	s := create(t, 1<<20)
	r, w := pipe(t)
	filled := filling(s, r)
	flood := child(t, "flood", []string{"1000000000000"}, w)
	w.Close()
	eventually(t, "a flood", func() bool { n, _ := s.Total(); return n > 1<<20 })
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := s.Settle(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if err := flood.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = flood.Wait()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
}

func TestSettleEndsWithItsContext(t *testing.T) {
	s := create(t, 100)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	if err := s.Settle(ctx); !errors.Is(err, cause) || !errors.Is(err, sbxerr.Deadline) {
		t.Errorf("without Fill: %v", err)
	}
	s.Finish()
	if err := s.Settle(t.Context()); err != nil {
		t.Errorf("of a finished store: %v", err)
	}
}

// What a background child writes after the result is thrown away, and the
// child never waits.
func TestFillAfterFinish(t *testing.T) {
	s := create(t, 100)
	r, w := pipe(t)
	filled := filling(s, r)
	write(t, w, []byte("result"))
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Finish()
	write(t, w, make([]byte, 1<<20)) // more than the pipe holds
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	if n, cut := s.Total(); n != 6 || cut {
		t.Errorf("Total = %d, %v", n, cut)
	}
	same(t, "the result", follow(t, s, 0), "result")
}

// A store that cannot make its file still counts and never holds the command
// back.
func TestLostFromTheFirstByte(t *testing.T) {
	s := createAt(t, filepath.Join(t.TempDir(), "absent", "stdout"), 100)
	r, w := pipe(t)
	filled := filling(s, r)
	write(t, w, make([]byte, 1<<20))
	w.Close()
	if err := within(t, "end", filled); err != nil {
		t.Error(err)
	}
	write(t, s, []byte("hello"))
	s.Finish()
	if n, cut := s.Total(); n != 1<<20+5 || !cut {
		t.Errorf("Total = %d, %v", n, cut)
	}
	var b strings.Builder
	if err := copyTo(s, t.Context(), &b, 0, true); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, sbxerr.StateDir) || b.String() != Mark(1<<20+5) {
		t.Errorf("Follow = %q, %v", b.String(), err)
	}
	if !errors.Is(s.Lost(), os.ErrNotExist) {
		t.Errorf("Lost = %v", s.Lost())
	}
}
