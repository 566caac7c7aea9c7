package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
)

// small has segments of some ten records.
var small = audit.Options{Name: "test", SegmentBytes: 2 << 10}

func open(t testing.TB, o audit.Options) *audit.Log {
	t.Helper()
	l, opened, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if opened.Broken != nil || opened.Torn > 0 {
		t.Fatalf("opened %+v", opened)
	}
	return l
}

func object(n int) []byte {
	return fmt.Appendf(nil, `{"type":"run.caisson.exec.ended","n":%d,"text":"%s"}`, n, strings.Repeat("x", 40))
}

// write makes a log of n records and closes it.
func write(t testing.TB, o audit.Options, n int) {
	t.Helper()
	l := open(t, o)
	for i := range n {
		if err := l.Record(object(i), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, dir string) *audit.Report {
	t.Helper()
	r, err := audit.Verify(dir, audit.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// files lists the segments of a log.
func files(t testing.TB, dir, suffix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestGoesOn(t *testing.T) {
	o := small
	o.Dir = filepath.Join(t.TempDir(), "audit")
	for range 3 {
		write(t, o, 25)
	}
	r := verify(t, o.Dir)
	if r.Err() != nil || r.Records != 75 || r.Signed != 75 || r.Last.Seq != 75 || r.Segments < 5 {
		t.Errorf("%+v", r)
	}
	n := uint64(0)
	for rec, err := range audit.Records(o.Dir, 31) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; rec.Seq != 30+n || !bytes.Contains(rec.Line, fmt.Appendf(nil, `"n":%d,`, (30+n-1)%25)) {
			t.Errorf("record %d: %s", rec.Seq, rec.Line)
		}
	}
	if n != 45 {
		t.Errorf("%d records from 31 on", n)
	}
	if last, err := audit.Last(o.Dir); last != 75 || err != nil {
		t.Errorf("last %d, %v", last, err)
	}
	for _, path := range slices.Concat(files(t, o.Dir, ".jsonl"), []string{filepath.Join(o.Dir, "key")}) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// edit changes the lines of a file.
func edit(t *testing.T, path string, change func([]string) []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := change(strings.SplitAfter(string(text), "\n"))
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Each change by hand is found, and where it is.
func TestVerifyFinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, segments, heads []string)
		says   string
	}{
		{"a changed character", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { l[3] = strings.Replace(l[3], "xxx", "xyx", 1); return l })
		}, "line 5, record"},
		{"a changed last record", func(t *testing.T, s, _ []string) {
			last := s[len(s)-1]
			edit(t, last, func(l []string) []string {
				l[len(l)-2] = strings.Replace(l[len(l)-2], "xxx", "xyx", 1)
				return l
			})
		}, "not the record that was signed"},
		{"a removed record", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { return slices.Delete(l, 3, 4) })
		}, "line 4, record"},
		{"a removed last record", func(t *testing.T, s, _ []string) {
			edit(t, s[len(s)-1], func(l []string) []string { return slices.Delete(l, len(l)-2, len(l)-1) })
		}, "it is cut"},
		{"a removed last record of a sealed segment", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { return slices.Delete(l, len(l)-2, len(l)-1) })
		}, "it is cut"},
		{"an inserted record", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { return slices.Insert(l, 3, l[2]) })
		}, "line 4, record"},
		{"an inserted line", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { return slices.Insert(l, 3, "{\"seq\":1}\n") })
		}, "it is no record"},
		{"an appended record", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string {
				return append(l, fmt.Sprintf(`{"seq":%d,"prev":"%s","type":"x"}`+"\n", 1, strings.Repeat("0", 64)))
			})
		}, "out of order"},
		{"swapped records", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { l[2], l[3] = l[3], l[2]; return l })
		}, "line 3, record"},
		{"a record that is cut", func(t *testing.T, s, _ []string) {
			edit(t, s[1], func(l []string) []string { n := len(l) - 2; l[n] = l[n][:30]; return l })
		}, "it is cut"},
		{"a removed first segment", func(t *testing.T, s, h []string) { remove(t, s[0], h[0]) }, "are missing before it"},
		{"a removed segment", func(t *testing.T, s, h []string) { remove(t, s[1], h[1]) }, "are missing before it"},
		{"a removed head", func(t *testing.T, _, h []string) { remove(t, h[1]) }, "no signed head"},
		{"a changed head", func(t *testing.T, _, h []string) {
			edit(t, h[1], func(l []string) []string { l[1] = "3\n"; return l })
		}, "no signed head"},
		{"a head of another segment", func(t *testing.T, _, h []string) {
			text, err := os.ReadFile(h[2])
			if err != nil {
				t.Fatal(err)
			}
			edit(t, h[1], func([]string) []string { return []string{string(text)} })
		}, "this record was signed"},
		{"a removed newest segment", func(t *testing.T, s, _ []string) { remove(t, s[len(s)-1]) }, "it is cut"},
		{"a removed head of the log", func(t *testing.T, s, _ []string) { remove(t, filepath.Join(filepath.Dir(s[0]), "head")) }, "the log has no signed head"},
		{"a head of a segment as that of the log", func(t *testing.T, s, h []string) {
			remove(t, s[len(s)-1])
			if err := os.Rename(h[len(h)-1], filepath.Join(filepath.Dir(s[0]), "head")); err != nil {
				t.Fatal(err)
			}
		}, "the log has no signed head"},
		{"all of it removed", func(t *testing.T, s, h []string) { remove(t, s...); remove(t, h...) }, "there is no segment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := small
			o.Dir = t.TempDir()
			write(t, o, 40)
			if r := verify(t, o.Dir); r.Err() != nil {
				t.Fatal(r.Err())
			}
			c.change(t, files(t, o.Dir, ".jsonl"), files(t, o.Dir, ".head"))
			r := verify(t, o.Dir)
			if sbxerr.Of(r.Err()) != sbxerr.AuditBroken || !strings.Contains(r.Err().Error(), c.says) {
				t.Errorf("found %v, want %q", r.Err(), c.says)
			}
		})
	}
}

// A log that somebody wrote anew with another key is not signed with the one that was
// shown at the installation.
func TestForgedLog(t *testing.T) {
	o := small
	o.Dir = t.TempDir()
	write(t, o, 5)
	key, err := os.ReadFile(filepath.Join(o.Dir, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = t.TempDir()
	write(t, o, 5)
	if r := verify(t, o.Dir); r.Err() != nil {
		t.Errorf("the control: %v", r.Err())
	}
	r, err := audit.Verify(o.Dir, audit.VerifyOptions{Key: string(key)})
	if err != nil || r.Err() == nil || !strings.Contains(r.Err().Error(), "not signed with the key") {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := audit.Verify(o.Dir, audit.VerifyOptions{Key: "nonsense"}); sbxerr.Of(err) != sbxerr.APIUsage {
		t.Errorf("a key that is none: %v", err)
	}
}

// What is cut while no daemon runs is told by the next one, and stays visible.
func TestOpenTellsOfACut(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	write(t, o, 10)
	edit(t, files(t, o.Dir, ".jsonl")[0], func(l []string) []string { return l[:7] })
	l, opened, err := audit.Open(o)
	if err != nil || sbxerr.Of(opened.Broken) != sbxerr.AuditBroken || !strings.Contains(opened.Broken.Error(), "record 10 was signed, and the last that is there is 7") {
		t.Fatalf("%+v, %v", opened, err)
	}
	if err := l.Record([]byte(`{"type":"run.caisson.audit.broken"}`), false); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := l.Record(object(1), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := verify(t, o.Dir)
	if len(r.Problems) != 1 || r.Problems[0].Seq != 8 || !strings.Contains(r.Problems[0].What, "a daemon found") {
		t.Errorf("%+v", r)
	}
}

// A log whose segments were all removed, or that begins after its end, was longer, and says
// so from then on, whatever is written to it.
func TestOpenTellsOfARemoval(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"all segments": {func(t *testing.T, dir string) { remove(t, files(t, dir, ".jsonl")...) }, "record 10 was signed, and the log has no segment"},
		"with the key": {func(t *testing.T, dir string) {
			remove(t, append(files(t, dir, ".jsonl"), filepath.Join(dir, "key"), filepath.Join(dir, "key.pub"))...)
		}, "not signed with the key"},
	} {
		t.Run(name, func(t *testing.T) {
			o := audit.Options{Name: "test", Dir: t.TempDir()}
			write(t, o, 10)
			tt.damage(t, o.Dir)
			for range 2 { // also where the first one is killed before it tells
				l, opened, err := audit.Open(o)
				if err != nil || sbxerr.Of(opened.Broken) != sbxerr.AuditBroken || !strings.Contains(opened.Broken.Error(), tt.want) {
					t.Fatalf("%+v, %v", opened, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				tt.want = "" // the segment is there then
			}
			l, _, err := audit.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range [][]byte{[]byte(`{"type":"run.caisson.audit.broken"}`), object(1), object(2)} {
				if err := l.Record(r, false); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, o.Dir); r.Err() == nil || !strings.Contains(r.Err().Error(), "a daemon found") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// An older copy of the log is whole by itself, and lacks the head that somebody kept.
func TestVerifyAgainst(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	write(t, o, 10)
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	oldLast := verify(t, old).Last
	write(t, o, 10)
	last := verify(t, o.Dir).Last
	head := filepath.Join(t.TempDir(), "head")
	text, err := os.ReadFile(filepath.Join(o.Dir, "head"))
	if err == nil {
		err = os.WriteFile(head, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	place := func(h audit.Head) string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }
	for _, tt := range []struct{ dir, against, want string }{
		{o.Dir, "", ""},
		{o.Dir, place(last), ""},
		{o.Dir, place(oldLast), ""},
		{o.Dir, head, ""},
		{old, "", ""}, // the control: nothing in it tells that it is old
		{old, place(oldLast), ""},
		{old, place(last), "the log was longer"},
		{old, head, "the log was longer"},
		{o.Dir, place(audit.Head{Seq: oldLast.Seq, Hash: last.Hash}), "not the record that is known"},
	} {
		r, err := audit.Verify(tt.dir, audit.VerifyOptions{Against: tt.against})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s against %q: %v, want %q", tt.dir, tt.against, err, tt.want)
		}
	}
	for _, bad := range []string{"12", "12:ab", "x:" + last.Hash.String(), place(last) + "00", "/nonexistent"} {
		if _, err := audit.Verify(o.Dir, audit.VerifyOptions{Against: bad}); sbxerr.Of(err) != sbxerr.APIUsage {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A key that is gone is not replaced while there are records.
func TestLostKey(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	write(t, o, 3)
	remove(t, filepath.Join(o.Dir, "key"))
	if _, _, err := audit.Open(o); sbxerr.Of(err) != sbxerr.AuditBroken || !strings.Contains(sbxerr.RemedyOf(err), "restore") {
		t.Errorf("%v", err)
	}
}

// Retention leaves a signed start; a segment that somebody removes in its name is missed.
func TestRetention(t *testing.T) {
	o := small
	o.Dir = t.TempDir()
	write(t, o, 100)
	before := len(files(t, o.Dir, ".jsonl"))
	o.MaxBytes = 7 << 10
	write(t, o, 1)
	after := files(t, o.Dir, ".jsonl")
	r := verify(t, o.Dir)
	if len(after) >= before || len(after) < 3 || r.Err() != nil || r.Removed == 0 || r.Records != 101-r.Removed {
		t.Errorf("%d segments of %d, %+v", len(after), before, r)
	}
	remove(t, after[0], files(t, o.Dir, ".head")[0])
	if r := verify(t, o.Dir); r.Err() == nil {
		t.Error("a removed segment is not missed")
	}
	o.MaxBytes, o.Dir = 0, t.TempDir()
	write(t, o, 100)
	old := files(t, o.Dir, ".jsonl")
	for _, path := range old[:3] {
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	o.MaxAge = time.Hour
	write(t, o, 1)
	if left := files(t, o.Dir, ".jsonl"); len(left) != len(old)-3 || verify(t, o.Dir).Err() != nil {
		t.Errorf("%d segments left of %d: %v", len(left), len(old), verify(t, o.Dir).Err())
	}
}

func TestNoLog(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	_, lastErr := audit.Last(none)
	_, verifyErr := audit.Verify(none, audit.VerifyOptions{})
	for _, err := range []error{lastErr, verifyErr} {
		if sbxerr.Of(err) != sbxerr.ClientIO || !strings.Contains(sbxerr.RemedyOf(err), "ROOT/audit") {
			t.Errorf("%v", err)
		}
	}
}

func TestRecordThatIsTooLong(t *testing.T) {
	o := audit.Options{Name: "test", Dir: t.TempDir()}
	l := open(t, o)
	if err := l.Record(slices.Concat([]byte(`{"x":"`), bytes.Repeat([]byte("x"), audit.MaxRecord), []byte(`"}`)), true); sbxerr.Of(err) != sbxerr.AuditWrite {
		t.Errorf("%v", err)
	}
	if err := l.Record(object(1), true); err != nil {
		t.Error(err)
	}
	if written, failed := l.Counts(); written != 1 || failed != 1 {
		t.Errorf("%d written, %d failed", written, failed)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if r := verify(t, o.Dir); r.Err() != nil || r.Records != 1 {
		t.Errorf("%+v", r)
	}
}

func TestFollow(t *testing.T) {
	o := small
	o.Dir = t.TempDir()
	l := open(t, o)
	go func() {
		for i := range 50 {
			if err := l.Record(object(i), true); err != nil {
				t.Error(err)
			}
		}
	}()
	got := uint64(0)
	err := audit.Follow(t.Context(), o.Dir, 11, func(r audit.Record) error {
		if got++; r.Seq != 10+got {
			t.Errorf("record %d, want %d", r.Seq, 10+got)
		}
		if r.Seq == 50 {
			return os.ErrClosed
		}
		return nil
	})
	if err != os.ErrClosed {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// line is as long as records were when the figures of the documentation were taken.
func line() []byte {
	return fmt.Appendf(nil, `{"type":"run.caisson.exec.ended","data":"%s"}`, strings.Repeat("x", 430))
}

func BenchmarkRecord(b *testing.B) {
	l := open(b, audit.Options{Name: "test", Dir: b.TempDir()})
	defer l.Close()
	object := line()
	for b.Loop() {
		if err := l.Record(object, true); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkVerify(b *testing.B) {
	o := audit.Options{Name: "test", Dir: b.TempDir()}
	l := open(b, o)
	const n = 200_000
	object := line()
	for range n {
		if err := l.Record(object, true); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r := verify(b, o.Dir); r.Err() != nil || r.Records != n {
			b.Fatalf("%+v", r)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
