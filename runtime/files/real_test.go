package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func ptr[T any](v T) *T { return &v }

// refused checks the code of err and that it names what it is about.
func refused(t *testing.T, what string, err error, code sbxerr.Code, text string) {
	t.Helper()
	if sbxerr.Of(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want %s with %q", what, err, code, text)
	}
}

func TestStat(t *testing.T) {
	s, _, dir := session(t)
	ctx := testContext(t)
	write(t, dir+"/file", "12345", 0o640)
	when := time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)
	if err := errors.Join(os.Chtimes(dir+"/file", when, when), os.Symlink("file", dir+"/link"), os.Symlink("gone", dir+"/dangling"),
		syscall.Mkfifo(dir+"/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	i, err := s.Stat(ctx, dir+"/file", false)
	want := Info{Path: dir + "/file", Type: "file", Size: 5, Mode: 0o640, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), ModTime: when}
	if err != nil || !reflect.DeepEqual(i, want) {
		t.Errorf("%+v, %v; want %+v", i, err, want)
	}
	if i, err = s.Stat(ctx, dir+"/link", false); err != nil || i.Type != "symlink" || i.Link != "file" {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err = s.Stat(ctx, dir+"/link", true); err != nil || i.Type != "file" || i.Path != dir+"/link" {
		t.Errorf("%+v, %v", i, err)
	}
	for path, typ := range map[string]string{dir: "directory", dir + "/fifo": "fifo", "/dev/null": "device", "/": "directory"} {
		if i, err := s.Stat(ctx, path, false); err != nil || i.Type != typ {
			t.Errorf("%s: %+v, %v", path, i, err)
		}
	}
	_, err = s.Stat(ctx, dir+"/dangling", true)
	refused(t, "dangling", err, sbxerr.FileAbsent, dir+`/dangling": no such file or directory`)
	_, err = s.Stat(ctx, dir+"/file/x", true)
	refused(t, "below a file", err, sbxerr.FileKind, "not a directory")
}

func TestList(t *testing.T) {
	s, _, dir := session(t)
	for _, name := range []string{"b/c/d/e", "a", "b/x"} {
		write(t, filepath.Join(dir, name), name, 0o644)
	}
	if err := os.Symlink("b", dir+"/z"); err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[uint32]string{0: "a b z", 1: "a b z", 2: "a b b/c b/x z", 9: "a b b/c b/c/d b/c/d/e b/x z"} {
		list, truncated, err := s.ListDir(testContext(t), dir, depth)
		got := []string{}
		for _, i := range list {
			got = append(got, i.Path)
		}
		if err != nil || truncated || strings.Join(got, " ") != want {
			t.Errorf("depth %d: %q, %v, %v", depth, got, truncated, err)
		}
	}
	s.limits.ListEntries = 3
	list, truncated, err := s.fresh().ListDir(testContext(t), dir, 9)
	if err != nil || !truncated || len(list) != 3 {
		t.Errorf("with a limit of entries: %d, %v, %v", len(list), truncated, err)
	}
	s.limits.ListEntries, s.limits.ListBytes = 100, 5
	list, truncated, err = s.fresh().ListDir(testContext(t), dir, 9)
	if err != nil || !truncated || len(list) != 3 { // a, b, z and its target are 4 bytes
		t.Errorf("with a limit of bytes: %d, %v, %v", len(list), truncated, err)
	}
	_, _, err = s.ListDir(testContext(t), dir+"/a", 1)
	refused(t, "a file", err, sbxerr.FileKind, "not a directory")
}

// fresh drops the kept process, so that new limits hold.
func (s *Session) fresh() *Session {
	if p := s.take(); p != nil {
		p.end()
	}
	return s
}

func TestRead(t *testing.T) {
	s, _, dir := session(t)
	ctx := testContext(t)
	content := strings.Repeat("0123456789abcdef", 40<<10) // several frames
	write(t, dir+"/file", content, 0o644)
	for _, tc := range []struct {
		offset, length int64
		want           string
	}{
		{0, 0, content}, {5, 3, "567"}, {int64(len(content)) - 2, 0, "ef"}, {int64(len(content)) - 2, 100, "ef"},
		{int64(len(content)) + 5, 0, ""}, {math.MaxInt64, 0, ""}, {math.MaxInt64, math.MaxInt64, ""}, {1, 300000, content[1:300001]},
	} {
		var b bytes.Buffer
		var info Info
		err := s.Read(ctx, dir+"/file", tc.offset, tc.length, func(i Info) error { info = i; return nil }, &b)
		if err != nil || b.String() != tc.want || info.Size != int64(len(content)) {
			t.Errorf("%d+%d: %d bytes, %+v, %v", tc.offset, tc.length, b.Len(), info, err)
		}
	}
	var b bytes.Buffer
	if err := s.Read(ctx, "/proc/self/comm", 0, 0, func(Info) error { return nil }, &b); err != nil || b.String() != "caisson-init\n" {
		t.Errorf("a file without a size: %q, %v", &b, err)
	}
	write(t, dir+"/empty", "", 0o644)
	for _, path := range []string{"/proc/self/comm", dir + "/empty"} {
		b.Reset()
		if err := s.Read(ctx, path, math.MaxInt64, 0, func(Info) error { return nil }, &b); err != nil || b.Len() > 0 {
			t.Errorf("beyond %s: %q, %v", path, &b, err)
		}
	}
	if err := syscall.Mkfifo(dir+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/secret", "x", 0o000)
	for path, want := range map[string]struct {
		code sbxerr.Code
		text string
	}{
		dir + "/fifo": {sbxerr.FileKind, `fifo": not a regular file`},
		"/dev/zero":   {sbxerr.FileKind, "not a regular file"},
		dir:           {sbxerr.FileKind, "is a directory"},
		dir + "/gone": {sbxerr.FileAbsent, `read "` + dir + `/gone": no such file`},
	} {
		err := s.Read(ctx, path, 0, 0, func(Info) error { return nil }, io.Discard)
		refused(t, path, err, want.code, want.text)
	}
	if os.Getuid() == 0 { // root's file is closed to the stranger
		refused(t, "secret", s.Read(ctx, dir+"/secret", 0, 0, func(Info) error { return nil }, io.Discard), sbxerr.FileRights, "permission denied")
	}
	enough := errors.New("enough")
	if err := s.Read(ctx, dir+"/file", 0, 0, func(Info) error { return enough }, io.Discard); !errors.Is(err, enough) {
		t.Errorf("a refusal of info: %v", err)
	}
	s.limits.Bytes = 1000
	b.Reset()
	err := s.Read(ctx, dir+"/file", 0, 0, func(Info) error { return nil }, &b)
	refused(t, "past the limit", err, sbxerr.FileTooBig, "more than 1000 bytes")
	if b.Len() > 1000 {
		t.Errorf("%d bytes past a limit of 1000", b.Len())
	}
}

func TestWrite(t *testing.T) {
	s, _, dir := session(t)
	ctx := testContext(t)
	content := strings.Repeat("x", 300<<10)
	i, err := s.Write(ctx, dir+"/a/b/file", nil, true, strings.NewReader(content))
	if err != nil || i.Size != int64(len(content)) || i.Mode != 0o644 || i.Path != dir+"/a/b/file" {
		t.Fatalf("%+v, %v", i, err)
	}
	if got, _ := os.ReadFile(dir + "/a/b/file"); string(got) != content {
		t.Errorf("%d bytes are there", len(got))
	}
	if i, err = s.Write(ctx, dir+"/a/b/file", ptr(uint32(0o700)), false, strings.NewReader("new")); err != nil || i.Mode != 0o700 {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err = s.Write(ctx, dir+"/a/b/file", nil, false, strings.NewReader("")); err != nil || i.Mode != 0o700 || i.Size != 0 {
		t.Errorf("the mode was not kept: %+v, %v", i, err)
	}
	if err := os.Symlink("a/b/file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if i, err = s.Write(ctx, dir+"/link", nil, false, strings.NewReader("through")); err != nil || i.Type != "file" {
		t.Errorf("%+v, %v", i, err)
	}
	if got, _ := os.ReadFile(dir + "/a/b/file"); string(got) != "through" {
		t.Errorf("the target of the symlink is %q", got)
	}
	if target, err := os.Readlink(dir + "/link"); err != nil || target != "a/b/file" {
		t.Errorf("the symlink is %q, %v", target, err)
	}
	for path, want := range map[string]struct {
		code sbxerr.Code
		text string
	}{
		dir + "/no/such": {sbxerr.FileAbsent, "no such file or directory"},
		dir + "/a":       {sbxerr.FileKind, "is a directory"},
		"/dev/null":      {sbxerr.FileKind, "not a regular file"},
		dir + "/x/":      {sbxerr.FilePath, "ends with a slash"},
	} {
		_, err := s.Write(ctx, path, nil, false, strings.NewReader(content))
		refused(t, path, err, want.code, want.text)
	}
	if got := names(t, dir+"/a/b"); !slices.Equal(got, []string{"file"}) {
		t.Errorf("left behind: %q", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a", "link"}) {
		t.Errorf("left behind: %q", got)
	}
}

// stalling gives one chunk, tells that it was taken, and then waits for its end.
type stalling struct {
	once  sync.Once
	taken chan struct{}
	ctx   context.Context
	err   error
}

func (r *stalling) Read(p []byte) (int, error) {
	first := false
	r.once.Do(func() { first = true })
	if first {
		return copy(p, strings.Repeat("n", 64<<10)), nil
	}
	close(r.taken)
	<-r.ctx.Done()
	return 0, r.err
}

// A caller that goes away, a source that breaks and a process that is killed all
// leave the old file and no other.
func TestWriteThatDoesNotEndLeavesTheOldFile(t *testing.T) {
	for _, how := range []string{"cancelled", "source", "killed"} {
		t.Run(how, func(t *testing.T) {
			s, r, dir := session(t)
			write(t, dir+"/file", "old", 0o644)
			own(t, dir)
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			sourceCtx, breakOff := context.WithCancel(ctx)
			defer breakOff()
			source := &stalling{taken: make(chan struct{}), ctx: sourceCtx, err: io.ErrUnexpectedEOF}
			go func() {
				<-source.taken
				switch how {
				case "cancelled":
					cancel()
				case "source":
					breakOff()
				case "killed":
					r.kill()
					r.running.Wait()
					breakOff()
				}
			}()
			_, err := s.Write(ctx, dir+"/file", nil, false, source)
			if err == nil {
				t.Fatal("it succeeds")
			}
			if how == "source" {
				refused(t, how, err, sbxerr.Canceled, "unexpected EOF")
			}
			r.running.Wait()
			if got, _ := os.ReadFile(dir + "/file"); string(got) != "old" {
				t.Errorf("the file is now %.10q", got)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestWriteStopsAtTheLimit(t *testing.T) {
	s, _, dir := session(t)
	s.limits.Bytes = 200_000
	_, err := s.Write(testContext(t), dir+"/file", nil, false, zeros{})
	refused(t, "endless", err, sbxerr.FileTooBig, "more than 200000 bytes")
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A source without an end must stop at once when the process refuses.
func TestWriteStopsWhenRefused(t *testing.T) {
	s, _, dir := session(t)
	_, err := s.Write(testContext(t), dir+"/gone/file", nil, false, zeros{})
	refused(t, "endless", err, sbxerr.FileAbsent, "no such file")
}

func TestMakeMoveRemove(t *testing.T) {
	s, r, dir := session(t)
	ctx := testContext(t)
	i, err := s.MakeDir(ctx, dir+"/d", ptr(uint32(0o750)), false)
	if err != nil || i.Type != "directory" || i.Mode != 0o750 {
		t.Errorf("%+v, %v", i, err)
	}
	_, err = s.MakeDir(ctx, dir+"/d", nil, false)
	refused(t, "make again", err, sbxerr.FileExists, "file exists")
	if i, err = s.MakeDir(ctx, dir+"/d/e/f/", nil, true); err != nil || i.Mode != 0o755 {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err = s.MakeDir(ctx, dir+"/d", nil, true); err != nil || i.Mode != 0o750 {
		t.Errorf("%+v, %v", i, err)
	}
	_, err = s.MakeDir(ctx, dir+"/x/y", nil, false)
	refused(t, "without parents", err, sbxerr.FileAbsent, "x/y")
	write(t, dir+"/one", "1", 0o644)
	write(t, dir+"/two", "2", 0o644)
	_, err = s.Move(ctx, dir+"/one", dir+"/two", false)
	refused(t, "over another", err, sbxerr.FileExists, dir+`/two": file exists`)
	if i, err = s.Move(ctx, dir+"/one", dir+"/two", true); err != nil || i.Path != dir+"/two" {
		t.Errorf("%+v, %v", i, err)
	}
	if got, _ := os.ReadFile(dir + "/two"); string(got) != "1" {
		t.Errorf("two holds %q", got)
	}
	_, err = s.Move(ctx, dir+"/one", dir+"/three", false)
	refused(t, "of nothing", err, sbxerr.FileAbsent, "/one")
	if _, err = s.Move(ctx, dir+"/d", dir+"/g", false); err != nil {
		t.Error(err)
	}
	refused(t, "not empty", s.Remove(ctx, dir+"/g", false), sbxerr.FileExists, "directory not empty")
	if err := os.Symlink(dir+"/g", dir+"/keep"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/g/precious", "p", 0o644)
	own(t, dir)
	if err := s.Remove(ctx, dir+"/keep", true); err != nil {
		t.Error(err)
	}
	if got := names(t, dir+"/g"); !slices.Contains(got, "precious") {
		t.Errorf("a symlink was followed: %q are left", got)
	}
	if err := s.Remove(ctx, dir+"/g", true); err != nil {
		t.Error(err)
	}
	refused(t, "again", s.Remove(ctx, dir+"/g", true), sbxerr.FileAbsent, "/g")
	if got := names(t, dir); !slices.Equal(got, []string{"two"}) {
		t.Errorf("there are %q", got)
	}
	if n := r.started.Load(); n != 1 {
		t.Errorf("%d processes for small requests, want 1", n)
	}
}

func TestWatch(t *testing.T) {
	s, _, dir := session(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	if err := os.Mkdir(dir+"/sub", 0o777); err != nil {
		t.Fatal(err)
	}
	own(t, dir)
	events := make(chan Event, 1000)
	ready := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- s.Watch(ctx, dir, true, func() { close(ready) }, func(e Event) error { events <- e; return nil })
	}()
	select {
	case <-ready:
	case err := <-result:
		t.Fatal(err)
	}
	expect := func(typ, path string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e == (Event{Path: dir + path, Type: typ}) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no %s of %s", typ, path)
			}
		}
	}
	write(t, dir+"/sub/file", "x", 0o600)
	expect("create", "/sub/file")
	expect("write", "/sub/file")
	if err := os.Chmod(dir+"/sub/file", 0o644); err != nil {
		t.Fatal(err)
	}
	expect("chmod", "/sub/file")
	if err := os.MkdirAll(dir+"/new/deep/deeper", 0o755); err != nil { // faster than any watch
		t.Fatal(err)
	}
	expect("create", "/new/deep/deeper")
	write(t, dir+"/new/deep/deeper/file", "x", 0o600)
	expect("create", "/new/deep/deeper/file")
	if err := os.Rename(dir+"/new", dir+"/moved"); err != nil {
		t.Fatal(err)
	}
	expect("rename", "/new")
	expect("create", "/moved")
	expect("create", "/moved/deep/deeper/file")
	write(t, dir+"/moved/deep/deeper/file", "again", 0o600)
	expect("write", "/moved/deep/deeper/file")
	if err := os.RemoveAll(dir + "/moved"); err != nil {
		t.Fatal(err)
	}
	expect("remove", "/moved/deep/deeper/file")
	expect("remove", "/moved")
	cancel()
	refused(t, "the end", <-result, sbxerr.Canceled, "context canceled")
	err := s.Watch(testContext(t), dir+"/gone", false, func() { t.Error("ready") }, nil)
	refused(t, "nothing", err, sbxerr.FileAbsent, "/gone")
}

// TestSessionSaysWhyAProcessDied: why is asked for a process that is lost, and nothing
// else is taken for that.
func TestSessionSaysWhyAProcessDied(t *testing.T) {
	s, r, dir := session(t)
	r.why = sbxerr.New(sbxerr.Processes, "test", "no thread")
	if _, err := s.Stat(testContext(t), dir+"/none", false); !errors.Is(err, sbxerr.FileAbsent) {
		t.Errorf("of a process that lives: %v", err)
	}
	err := s.Read(testContext(t), dir, 0, 0, func(Info) error { return nil }, io.Discard)
	if !errors.Is(err, sbxerr.FileKind) {
		t.Errorf("of a directory: %v", err)
	}
	write(t, dir+"/f", strings.Repeat("x", 1<<20), 0o644)
	dies := func(Info) error { r.kill(); return nil }
	refused(t, "a process that dies", s.Read(testContext(t), dir+"/f", 0, 0, dies, io.Discard), sbxerr.Processes, "no thread")
	r.why = nil
	refused(t, "one that dies of something else", s.Read(testContext(t), dir+"/f", 0, 0, dies, io.Discard), sbxerr.Init, "ended")
}

// All work on files is noted while it goes on, a watch is not.
func TestSessionNotesUse(t *testing.T) {
	s, r, dir := session(t)
	ctx := testContext(t)
	write(t, dir+"/f", "content", 0o644)
	noted := func(what string, want int64) {
		t.Helper()
		if uses, using := r.uses.Load(), r.using.Load(); uses != want || using != 0 {
			t.Errorf("after %s: %d uses, %d of them go on; want %d, 0", what, uses, using, want)
		}
	}
	if _, err := s.Stat(ctx, dir, false); err != nil {
		t.Fatal(err)
	}
	noted("a small request", 1)
	during := func(Info) error {
		if r.using.Load() != 1 {
			t.Error("a stream is not noted")
		}
		return nil
	}
	if err := s.Read(ctx, dir+"/f", 0, 0, during, io.Discard); err != nil {
		t.Fatal(err)
	}
	noted("a stream", 2)
	if err := s.Watch(ctx, dir+"/gone", false, func() {}, nil); !errors.Is(err, sbxerr.FileAbsent) {
		t.Error(err)
	}
	noted("a watch", 2)
}

// A process that was ended between two requests is replaced.
func TestSessionReplacesADeadProcess(t *testing.T) {
	s, r, dir := session(t)
	ctx := testContext(t)
	for n := int64(1); n <= 3; n++ {
		if _, err := s.Stat(ctx, dir, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(ctx, dir+"/gone", false); sbxerr.Of(err) != sbxerr.FileAbsent {
			t.Fatal(err)
		}
		if got := r.started.Load(); got != n {
			t.Fatalf("%d processes, want %d", got, n)
		}
		r.kill()
		r.running.Wait()
	}
}

func TestSessionEndsAnIdleProcess(t *testing.T) {
	s, r, dir := session(t)
	s.keep = time.Millisecond
	if _, err := s.Stat(testContext(t), dir, false); err != nil {
		t.Fatal(err)
	}
	r.running.Wait() // ends with the idle process, or the test hangs
	s.Close()
	s.keep = time.Hour
	if _, err := s.Stat(testContext(t), dir, false); err != nil {
		t.Fatal(err)
	}
	r.running.Wait() // a closed session keeps none
}
