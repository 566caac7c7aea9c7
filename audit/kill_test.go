package audit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/tests/need"
)

// writerEnv makes this test binary record until it is killed.
const writerEnv = "AUDIT_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		playWriter(dir)
	}
	os.Exit(m.Run())
}

// playWriter answers each record on standard output when it is written.
func playWriter(dir string) {
	l, _, err := audit.Open(audit.Options{Name: "test", Dir: dir, SegmentBytes: 256 << 10})
	if err != nil {
		panic(err)
	}
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				if err := l.Record(fmt.Appendf(nil, `{"id":"%s","text":"%s"}`, id, strings.Repeat("x", 400)), true); err != nil {
					panic(err)
				}
				fmt.Println(id) // one write(2)
			}
		}()
	}
	select {}
}

// A writer that is killed at any time loses no record that was answered, and what it left
// half written is cut off.
func TestKilledWriter(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	var answered []string
	for range 15 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+o.Dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(30+rand.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			answered = append(answered, lines.Text())
		}
		_ = cmd.Wait() // it was killed
	}
	l, opened, err := audit.Open(o)
	if err != nil || opened.Broken != nil {
		t.Fatalf("%+v, %v", opened, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, o.Dir); r.Err() != nil {
		t.Error(r.Err())
	}
	there := map[string]bool{}
	for rec, err := range audit.Records(o.Dir, 0) {
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(string(rec.Line[bytes.Index(rec.Line, []byte(`"id":"`))+len(`"id":"`):]), `"`)
		there[id] = true
	}
	lost := 0
	for _, id := range answered {
		if !there[id] {
			lost++
		}
	}
	if len(answered) < 1000 || lost > 0 {
		t.Errorf("%d of %d answered records are lost", lost, len(answered))
	}
}

// What a killed daemon wrote by half is cut off and told.
func TestTornTail(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	write(t, o, 5)
	path := files(t, o.Dir, ".jsonl")[0]
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":6,"prev":"0`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, o.Dir); r.Err() != nil || r.Torn != 18 || r.Records != 5 {
		t.Errorf("before: %+v", r)
	}
	l, opened, err := audit.Open(o)
	if err != nil || opened.Torn != 18 || opened.Broken != nil {
		t.Fatalf("%+v, %v", opened, err)
	}
	if err := l.Record(object(5), true); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, o.Dir); r.Err() != nil || r.Torn != 0 || r.Records != 6 {
		t.Errorf("after: %+v", r)
	}
}

// A full disk takes no part of a record. Where records are required, work is refused while
// the ends of what runs find room in the reserve; with room again all goes on.
func TestFullDisk(t *testing.T) {
	need.Root(t, "mounts a small file system")
	for _, required := range []bool{true, false} {
		t.Run(fmt.Sprintf("required %v", required), func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			l := open(t, audit.Options{Name: "test", Dir: filepath.Join(dir, "audit"), Required: required})
			filler := filepath.Join(dir, "filler")
			fillUp(t, filler)
			work := func() error { return l.Record(object(1), true) }
			var err error
			n := 0
			for err == nil && n < 50_000 {
				err = work()
				n++
			}
			if sbxerr.Of(err) != sbxerr.AuditWrite {
				t.Fatalf("after %d records: %v", n, err)
			}
			if required {
				for i := range 100 {
					if err := l.Record(object(i), false); err != nil {
						t.Fatalf("the end of work that runs: %v", err)
					}
				}
				if err := work(); sbxerr.Of(err) != sbxerr.AuditWrite {
					t.Errorf("work with the reserve alone: %v", err)
				}
			}
			if r := verify(t, filepath.Join(dir, "audit")); r.Err() != nil || r.Torn > 0 {
				t.Errorf("on a full disk: %+v", r)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(10 * time.Second); work() != nil; time.Sleep(50 * time.Millisecond) { // it looks each second
				if time.Now().After(deadline) {
					t.Fatal("it does not go on with room again")
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if r := verify(t, filepath.Join(dir, "audit")); r.Err() != nil {
				t.Error(r.Err())
			}
		})
	}
}

// A log for which there is no room begins when there is. Where records are required, it is
// refused.
func TestNoRoomForALog(t *testing.T) {
	need.Root(t, "mounts a small file system")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	fillUp(t, filler)
	o := audit.Options{Name: "test", Dir: filepath.Join(dir, "audit"), Required: true}
	if _, _, err := audit.Open(o); sbxerr.Of(err) != sbxerr.AuditWrite {
		t.Fatalf("required: %v", err)
	}
	o.Required = false
	l := open(t, o)
	if err := l.Record(object(0), true); sbxerr.Of(err) != sbxerr.AuditWrite {
		t.Errorf("recorded: %v", err)
	}
	remove(t, filler)
	for deadline := time.Now().Add(10 * time.Second); l.Record(object(1), true) != nil; time.Sleep(50 * time.Millisecond) { // it looks each second
		if time.Now().After(deadline) {
			t.Fatal("it does not begin with room")
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if r := verify(t, o.Dir); r.Err() != nil || r.Records != 1 {
		t.Errorf("%+v", r)
	}
}

// fillUp leaves no room on the disk of path.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
}
