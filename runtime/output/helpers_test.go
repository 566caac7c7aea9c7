package output

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// patience is how long a condition may take on a loaded machine.
const patience = time.Minute

// role makes a child of the test out of its own binary.
const role = "CAISSON_OUTPUT_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "fill":
		os.Exit(childFill())
	case "count":
		os.Exit(childCount())
	case "flood":
		os.Exit(childFlood())
	}
	os.Exit(m.Run())
}

// child starts this binary in a role, with files as its descriptors from 3 on.
// The test ends it at the latest.
func child(t testing.TB, as string, args []string, files ...*os.File) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.ExtraFiles, cmd.Stderr = files, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// childFlood writes the number of bytes in its argument to descriptor 3.
func childFlood() int {
	w := os.NewFile(3, "out")
	left, err := strconv.ParseInt(os.Args[1], 10, 64)
	buf := bytes.Repeat([]byte("caisson\n"), 64<<10/8)
	for err == nil && left > 0 {
		var n int
		n, err = w.Write(buf[:min(left, int64(len(buf)))])
		left -= int64(n)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func create(t testing.TB, limit int64) *Store {
	t.Helper()
	return createAt(t, filepath.Join(t.TempDir(), "stdout"), limit)
}

func createAt(t testing.TB, path string, limit int64) *Store {
	t.Helper()
	return createOf(t, Options{Path: path, Limit: limit})
}

func createOf(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s
}

func open(t testing.TB, path string, limit int64) *Store {
	t.Helper()
	return openOf(t, Options{Path: path, Limit: limit})
}

func openOf(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s
}

func closeAfter(t testing.TB, s *Store) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// filling starts a Fill and returns where its end is told.
func filling(s *Store, r *os.File) <-chan error {
	filled := make(chan error, 1)
	go func() { filled <- s.Fill(context.Background(), r) }()
	return filled
}

// within receives from c, within patience.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	panic("unreachable")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func write(t testing.TB, w io.Writer, data []byte) {
	t.Helper()
	if n, err := w.Write(data); n != len(data) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

func follow(t testing.TB, s *Store, from int64) string {
	t.Helper()
	var b bytes.Buffer
	if err := copyTo(s, t.Context(), &b, from, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// want is the model: what a reader from an offset gets of a finished stream.
func want(data []byte, limit, from int64) string {
	total, head := int64(len(data)), limit-limit/2
	if total <= limit {
		return string(data[min(from, total):])
	}
	tail := total - limit/2
	switch {
	case from < head:
		return string(data[from:head]) + Mark(tail-head) + string(data[tail:])
	case from < tail:
		return Mark(tail-from) + string(data[tail:])
	}
	return string(data[min(from, total):])
}

func random(n int) []byte {
	var seed [32]byte
	binary.NativeEndian.PutUint64(seed[:], rand.Uint64())
	data := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(data) // never fails
	return data
}

// same compares long strings without printing them.
func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: got %d bytes, want %d; they differ at %d: %.40q, want %.40q", what, len(got), len(want), at, got[at:], want[at:])
}

// Mark stands in the tests for n bytes that are left out.
func Mark(n int64) string { return fmt.Sprintf("\n[caisson: %d bytes left out]\n", n) }

// marked writes the mark where bytes are left out.
type marked struct{ io.Writer }

func (m marked) Skip(n int64) error {
	_, err := io.WriteString(m.Writer, Mark(n))
	return err
}

// copyTo is Follow where it does not matter how far it got.
func copyTo(s *Store, ctx context.Context, w io.Writer, from int64, wait bool) error {
	if _, ok := w.(Skipper); !ok {
		w = marked{w}
	}
	_, err := s.Follow(ctx, w, from, wait)
	return err
}

// keptOf is how many bytes of a stream can be read.
func keptOf(s *Store) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept - s.leftOut().size()
}
