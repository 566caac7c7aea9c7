package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The counter is made of lines of 16 bytes, so that each byte of the stream
// says where it belongs.
const counterLine = 16

func counter(from, to int64) []byte {
	start := from % counterLine
	data := make([]byte, 0, start+to-from+counterLine)
	line := []byte(fmt.Sprintf("%0*d\n", counterLine-1, from/counterLine))
	for int64(len(data)) < start+to-from {
		data = append(data, line...)
		last := counterLine - 2
		for ; line[last] == '9'; last-- {
			line[last] = '0'
		}
		line[last]++
	}
	return data[start : start+to-from]
}

// childCount writes the counter, as many bytes as its argument says, to
// descriptor 3, in writes of all sizes.
func childCount() int {
	w := os.NewFile(3, "out")
	size, err := strconv.ParseInt(os.Args[1], 10, 64)
	for at := int64(0); err == nil && at < size; {
		to := min(size, at+1+rand.Int64N(100_000))
		_, err = w.Write(counter(at, to))
		at = to
	}
	return exitCode(err)
}

// childFill is a daemon that fills the store at its argument from descriptor 3.
func childFill() int {
	if err := unix.SetNonblock(3, true); err != nil {
		return exitCode(err)
	}
	limit, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		return exitCode(err)
	}
	s, err := Open(Options{Path: os.Args[1], Limit: limit})
	if err != nil {
		return exitCode(err)
	}
	return exitCode(errors.Join(s.Fill(context.Background(), os.NewFile(3, "in")), s.Close()))
}

// A process that fills a store is killed, again and again; the next one goes on
// with the same pipe. Not one byte is missing or doubled.
func TestKill(t *testing.T) {
	const size, kills = 64 << 20, 15
	for _, limit := range []int64{1 << 30, 1 << 20} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stdout")
			r, w := pipe(t)
			count := child(t, "count", []string{fmt.Sprint(size)}, w)
			w.Close()
			amid, began := 0, time.Now()
			for range kills {
				before := sizeOf(t, path)
				killAmid(t, path, limit, before, r)
				if n := sizeOf(t, path); before < n && n < size {
					amid++
				}
				checkCounter(t, path, limit, began)
			}
			if amid < kills/5 {
				t.Errorf("only %d of %d processes were killed at work", amid, kills)
			}
			finishCounter(t, path, limit, r, size)
			if err := count.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// killAmid kills a process soon after it began to fill the store.
func killAmid(t *testing.T, path string, limit, before int64, r *os.File) {
	t.Helper()
	fill := child(t, "fill", []string{path, fmt.Sprint(limit)}, r)
	ended := make(chan error, 1)
	go func() { ended <- fill.Wait() }()
	for end := time.Now().Add(patience); sizeOf(t, path) == before; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the process that fills: %v", err)
			}
			return // the pipe has ended
		case <-time.After(100 * time.Microsecond):
		}
		if time.Now().After(end) {
			t.Fatal("nothing is filled")
		}
	}
	time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
	if err := fill.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-ended
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// checkCounter opens what a killed process left. It knows of every byte when that came.
func checkCounter(t *testing.T, path string, limit int64, began time.Time) {
	t.Helper()
	s, err := Open(Options{Path: path, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Finish()
	from := max(0, sizeOf(t, path)-1<<20)
	wantCounter(t, s, from) // the newest
	times := &timeline{next: from}
	if _, err := s.Follow(t.Context(), times, from, false); err != nil || times.err != nil {
		t.Error(err, times.err)
	}
	last := began.Add(-tick)
	for i, came := range times.came {
		if came.Before(last) || came.After(time.Now()) {
			t.Errorf("byte %d came at %v, after %v", times.at[i], came, last)
		}
		last = came
	}
	if s.Lost() != nil {
		t.Error(s.Lost())
	}
}

func finishCounter(t *testing.T, path string, limit int64, r *os.File, size int64) {
	t.Helper()
	conn, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	if cerr := conn.Control(func(p uintptr) { fd, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	polled := os.NewFile(uintptr(fd), "in")
	defer polled.Close()
	s := open(t, path, limit)
	if err := within(t, "end", filling(s, polled)); err != nil {
		t.Error(err)
	}
	s.Finish()
	if n, _ := s.Total(); n != size {
		t.Errorf("%d bytes, want %d", n, size)
	}
	wantCounter(t, s, 0)
}

// wantCounter compares all that a store keeps from an offset on.
func wantCounter(t *testing.T, s *Store, from int64) {
	t.Helper()
	total, _ := s.Total()
	r, w := io.Pipe()
	go func() { w.CloseWithError(copyTo(s, t.Context(), w, from, false)) }()
	check := func(from, to int64) {
		for at := from; at < to; {
			n := min(to-at, 1<<20)
			got := make([]byte, n)
			if _, err := io.ReadFull(r, got); err != nil {
				t.Fatal(err)
			}
			same(t, fmt.Sprintf("at %d", at), string(got), string(counter(at, at+n)))
			at += n
		}
	}
	if limit := s.o.Limit; total > limit && from < total-s.bound.tail {
		check(min(from, s.bound.head), s.bound.head)
		mark := Mark(total - s.bound.tail - max(from, s.bound.head))
		got := make([]byte, len(mark))
		if _, err := io.ReadFull(r, got); err != nil {
			t.Fatal(err)
		}
		same(t, "mark", string(got), mark)
		from = total - s.bound.tail
	}
	check(from, total)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("more than there is, or %v", err)
	}
}
