package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// timeline is a reader of times: what came when.
type timeline struct {
	at   []int64
	came []time.Time
	text []string
	next int64
	err  error
}

func (p *timeline) Place(offset int64, came time.Time) error {
	if offset != p.next {
		p.err = errors.Join(p.err, errors.New("a place is not where the stream is"))
	}
	p.at, p.came, p.text = append(p.at, offset), append(p.came, came), append(p.text, "")
	return nil
}

func (p *timeline) Write(b []byte) (int, error) {
	p.text[len(p.text)-1] += string(b)
	p.next += int64(len(b))
	return len(b), nil
}

func (p *timeline) Skip(n int64) error {
	p.next += n
	return nil
}

// timed reads a store from its beginning.
func timed(t *testing.T, s *Store) *timeline {
	t.Helper()
	p := &timeline{}
	if _, err := s.Follow(t.Context(), p, 0, false); err != nil && s.Lost() == nil || p.err != nil {
		t.Fatal(err, p.err)
	}
	return p
}

// later waits until the next bytes get a mark of their own: time is the input here.
func later() { time.Sleep(2*resolution + 5*time.Millisecond) }

// spell writes words one after the other, and returns between which times.
func spell(t *testing.T, s *Store, words ...string) (from, to []time.Time) {
	t.Helper()
	for _, word := range words {
		later()
		from = append(from, time.Now())
		if _, err := s.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
		to = append(to, time.Now())
	}
	return from, to
}

// tick is how late the clock may be that a file system has.
const tick = 10 * time.Millisecond

// wantPlaced compares what came when.
func wantPlaced(t *testing.T, got *timeline, words []string, from, to []time.Time) {
	t.Helper()
	if strings.Join(got.text, "|") != strings.Join(words, "|") {
		t.Fatalf("got %q, want %q", got.text, words)
	}
	for i, came := range got.came {
		if came.Before(from[i].Add(-tick)) || came.After(to[i]) {
			t.Errorf("%q came at %v, not from %v to %v", words[i], came, from[i], to[i])
		}
	}
}

// A reader learns when bytes came, and a later daemon knows it still. Output that came at
// once needs no file for that.
func TestTimesOutliveTheDaemon(t *testing.T) {
	for _, words := range [][]string{{"one\n"}, {"one\n", "two\n"}, {"one\n", "t", "wo\n", "three\n"}} {
		s := create(t, 1<<20)
		from, to := spell(t, s, words...)
		wantPlaced(t, timed(t, s), words, from, to)
		if _, err := os.Stat(s.o.Path + timesSuffix); (err == nil) != (len(words) > 1) {
			t.Errorf("the file of %d marks: %v", len(words), err)
		}
		again := open(t, s.o.Path, 1<<20)
		if a, b := s.Takes(), again.Takes(); a != b || a != keptOf(s)+sizeOf(t, s.o.Path+timesSuffix) {
			t.Errorf("it takes %d bytes, and to a later daemon %d", a, b)
		}
		wantPlaced(t, timed(t, again), words, from, to)
		more, less := spell(t, again, "four\n", "five\n")
		words, from, to = append(words, "four\n", "five\n"), append(from, more...), append(to, less...)
		wantPlaced(t, timed(t, again), words, from, to)
		again = open(t, s.o.Path, 1<<20)
		wantPlaced(t, timed(t, again), words, from, to)

		last := int64(len(strings.Join(words, "")) - len("five\n"))
		if got := again.Since(less[0].Add(2 * resolution)); got != last {
			t.Errorf("since the last word: %d, want %d", got, last)
		}
		if got := again.Since(time.Now().Add(time.Second)); got != last+int64(len("five\n")) {
			t.Errorf("since later: %d", got)
		}
		if err := Remove(s.o.Path); err != nil {
			t.Error(err)
		}
		empty(t, filepath.Dir(s.o.Path))
	}
}

// A reader that follows learns times as they come.
func TestTimesOfaFollower(t *testing.T) {
	s := create(t, 1<<20)
	got, ended := &timeline{}, make(chan error, 1)
	go func() {
		_, err := s.Follow(t.Context(), got, 0, true)
		ended <- err
	}()
	words := strings.Split("a b c d e f g h", " ")
	from, to := spell(t, s, words...)
	s.Finish()
	if err := within(t, "end", ended); err != nil || got.err != nil {
		t.Fatal(err, got.err)
	}
	wantPlaced(t, got, words, from, to)
}

// A reader may end at a time, which it waits for where it is to come.
func TestFollowUntil(t *testing.T) {
	s := create(t, 1<<20)
	from, _ := spell(t, s, "one", "two")
	read := func(until time.Time, wait bool) (string, int64) {
		var b bytes.Buffer
		next, err := s.FollowUntil(t.Context(), &b, 0, wait, until)
		if err != nil {
			t.Error(err)
		}
		return b.String(), next
	}
	for _, wait := range []bool{false, true} { // of the past nothing more comes
		for until, want := range map[time.Time]string{from[0].Add(-time.Hour): "", from[1]: "one", time.Now(): "onetwo"} {
			if got, next := read(until, wait); got != want || next != int64(len(want)) {
				t.Errorf("until %v, wait %v: %q, stands at %d", until, wait, got, next)
			}
		}
	}
	ended := make(chan string, 1)
	until := time.Now().Add(10 * resolution)
	go func() {
		text, _ := read(until, true)
		ended <- text
	}()
	spell(t, s, "three")
	if got := within(t, "end", ended); got != "onetwothree" || time.Now().Before(until) {
		t.Errorf("%q, %v before the time", got, time.Until(until))
	}
	go func() {
		text, _ := read(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), true)
		ended <- text
	}()
	spell(t, s, "four")
	s.Finish()
	if got := within(t, "end", ended); got != "onetwothreefour" {
		t.Errorf("until the far future: %q", got)
	}
}

// What a machine that lost power, or a stranger, made of the file costs times, and no byte.
func TestTimesOfaBrokenFile(t *testing.T) {
	words := []string{"one\n", "two\n", "three\n"}
	for name, tt := range map[string]struct {
		harm  func(path string, data []byte) error
		known int // of the words
	}{
		"torn":        {func(path string, data []byte) error { return os.WriteFile(path, append(data, "torn"...), 0o600) }, 3},
		"out of line": {func(path string, data []byte) error { return os.WriteFile(path, append(data, data...), 0o600) }, 0},
		"too large":   {func(path string, _ []byte) error { return os.Truncate(path, 1<<20) }, 0},
		"a link": {func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path))
		}, 0},
		"gone, and written later": {func(path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Chtimes(strings.TrimSuffix(path, timesSuffix), time.Time{}, time.Now().Add(time.Hour)))
		}, 0},
		"written later": {func(path string, _ []byte) error {
			return os.Chtimes(strings.TrimSuffix(path, timesSuffix), time.Time{}, time.Now().Add(time.Hour))
		}, 2},
	} {
		s := create(t, 1<<20)
		from, to := spell(t, s, words...)
		path := s.o.Path + timesSuffix
		data, err := os.ReadFile(path)
		if err := errors.Join(err, tt.harm(path, data)); err != nil {
			t.Fatal(err)
		}
		again := open(t, s.o.Path, 1<<20)
		got := timed(t, again)
		if text := strings.Join(got.text, ""); text != strings.Join(words, "") {
			t.Errorf("%s: got %q", name, text)
		}
		for i, came := range got.came {
			if came.IsZero() != (i >= tt.known) {
				t.Errorf("%s: part %d came at %v", name, i, came)
			}
		}
		if tt.known == 3 {
			more, less := spell(t, again, "four\n")
			wantPlaced(t, timed(t, open(t, s.o.Path, 1<<20)), append(words, "four\n"), append(from, more...), append(to, less...))
		} else if got := again.Since(time.Now().Add(time.Minute)); got != int64(len(strings.Join(words[:tt.known], ""))) {
			t.Errorf("%s: since later: %d", name, got)
		}
	}
}

// A disk that takes no file of marks loses the times from there on, also for a later
// daemon, and the output is whole.
func TestTimesOnaFullDisk(t *testing.T) {
	dir := mounted(t, "tmpfs", "size=1m,nr_inodes=2") // the directory and the output
	s := createAt(t, filepath.Join(dir, "stdout"), 1<<20)
	spell(t, s, "one\n", "two\n")
	time.Sleep(brief) // what comes after it needs a mark, which the disk does not take
	spell(t, s, "three\n")
	got := timed(t, s)
	if len(got.came) != 2 || got.came[0].IsZero() || !got.came[1].IsZero() || strings.Join(got.text, "|") != "one\n|two\nthree\n" {
		t.Errorf("%q came at %v", got.text, got.came)
	}
	got = timed(t, open(t, s.o.Path, 1<<20))
	if len(got.came) != 1 || !got.came[0].IsZero() || got.text[0] != "one\ntwo\nthree\n" {
		t.Errorf("after a restart %q came at %v", got.text, got.came)
	}
	if s.Lost() != nil {
		t.Error(s.Lost())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// fullOfMarks makes a stream that has all its marks, each of one byte.
func fullOfMarks(t *testing.T, path string) (first, last time.Time) {
	t.Helper()
	var file []byte
	begin := time.Now().Add(-mostMarks * resolution)
	for i := range int64(mostMarks) {
		last = begin.Add(time.Duration(i) * resolution)
		file = appendMark(file, mark{i, last.UnixNano(), last.UnixNano()})
	}
	if err := errors.Join(os.WriteFile(path, bytes.Repeat([]byte("x"), mostMarks), 0o600), os.WriteFile(path+timesSuffix, file, 0o600), os.Chtimes(path, time.Time{}, last)); err != nil {
		t.Fatal(err)
	}
	return begin, last
}

// Where the disk takes no thinned marks, those stay that there are.
func TestTimesAreNotThinnedOnaFullDisk(t *testing.T) {
	dir := mounted(t, "tmpfs", "size=160k") // the marks are 96 KiB, fewer of them 72
	path := filepath.Join(dir, "stdout")
	first, last := fullOfMarks(t, path)
	s := open(t, path, 1<<20)
	spell(t, s, "y", "z")
	got := timed(t, s)
	if n := len(got.came); n != mostMarks+1 || !got.came[0].Equal(first) || !got.came[n-2].Equal(last) || !got.came[n-1].IsZero() || got.text[n-1] != "yz" {
		t.Errorf("%d times from %v to %v, then %q", n, got.came[0], got.came[n-1], got.text[n-1])
	}
	if err := errors.Join(s.Close(), Remove(path)); err != nil {
		t.Error(err)
	}
	empty(t, dir)
}

// A stream that has all its marks goes on with fewer, of which the newest are what they
// were. What is left out of it has none, and it is known of the rest when that came.
func TestTimesAreThinned(t *testing.T) {
	const limit = 64 << 10
	path := filepath.Join(t.TempDir(), "stdout")
	first, last := fullOfMarks(t, path)
	s := open(t, path, limit)
	follower, ended := &notifying{&timeline{}, mostMarks, make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := s.Follow(t.Context(), follower, 0, true)
		ended <- err
	}()
	within(t, "all for the reader", follower.had)
	from, to := spell(t, s, "y", "z")
	if n := sizeOf(t, path+timesSuffix); n > mostMarks*3/4*markSize+2*markSize {
		t.Errorf("%d bytes of marks", n)
	}
	for _, s := range []*Store{s, open(t, path, limit)} {
		got := timed(t, s)
		n := len(got.came)
		wantPlaced(t, &timeline{text: got.text[n-2:], came: got.came[n-2:]}, []string{"y", "z"}, from, to)
		if !got.came[0].Equal(first) || !got.came[n-3].Equal(last) || n < mostMarks/2 || n > mostMarks*3/4+2 {
			t.Errorf("%d times from %v to %v", n, got.came[0], got.came[n-3])
		}
	}
	if _, err := s.Write(make([]byte, 64*limit)); err != nil { // a hole, in which the disk changes its time
		t.Fatal(err)
	}
	time.Sleep(brief + 2*tick) // a later daemon would take a changed time for lost marks
	s.Finish()
	if err := within(t, "end", ended); err != nil || follower.err != nil {
		t.Error(err, follower.err)
	}
	got := timed(t, open(t, path, limit))
	if n := len(got.came); got.came[n-1].IsZero() {
		t.Error("the last bytes have no time")
	}
	s.Drop()
	if _, err := os.Stat(path + timesSuffix); !errors.Is(err, unix.ENOENT) || s.Takes() != 0 || s.Since(time.Now()) != 0 {
		t.Errorf("times of a dropped stream: %v, it takes %d bytes", err, s.Takes())
	}
}

// notifying tells when it has had bytes up to an offset.
type notifying struct {
	*timeline
	at  int64
	had chan struct{}
}

func (n *notifying) Write(b []byte) (int, error) {
	before := n.next
	done, err := n.timeline.Write(b)
	if before < n.at && n.next >= n.at {
		close(n.had)
	}
	return done, err
}

// A reader's failure to take a time ends it where it was.
func TestPlaceFails(t *testing.T) {
	s := create(t, 1<<20)
	spell(t, s, "one", "two")
	next, err := s.Follow(t.Context(), &refusing{timeline: &timeline{}}, 0, false)
	if !errors.Is(err, io.ErrClosedPipe) || next != 3 {
		t.Errorf("Follow = %d, %v", next, err)
	}
}

// refusing takes one time.
type refusing struct{ *timeline }

func (r *refusing) Place(offset int64, came time.Time) error {
	if offset > 0 {
		return io.ErrClosedPipe
	}
	return r.timeline.Place(offset, came)
}
