package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// A copy of the log is read from any directory, and a query tells of values that no record has.
func TestAuditOfACopy(t *testing.T) {
	dir := t.TempDir()
	daemon.Run(t, "run", "--", "true")
	await(t, "a signed head", func() bool {
		_, err := os.Stat(filepath.Join(daemon.Root, "audit", "head"))
		return err == nil
	})
	if err := os.Mkdir(filepath.Join(dir, "copy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"head", "key.pub", "00000000000000000001.jsonl"} { // the head first: the log goes on
		text, err := os.ReadFile(filepath.Join(daemon.Root, "audit", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "copy", name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, call := range [][]string{{"tail"}, {"verify"}, {"query", "--type", "exec.*", "--caller", "uid 0"}} {
		cmd := daemon.Command(t.Context(), append([]string{"audit", "--dir", "copy"}, call...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 || strings.Contains(string(out), "no record") {
			t.Errorf("%q: %v, %s", call, err, out)
		}
	}
	r := daemon.Run(t, "audit", "query", "--type", "exec.stated", "--type", "exec.started", "--caller", "uid nobody")
	if want := "caisson: no record of the log has the type \"exec.stated\"\ncaisson: no record of the log has the caller \"uid nobody\"\n"; r.Stdout != "" || r.Stderr != want {
		t.Errorf("%q, %q", r.Stdout, r.Stderr)
	}
}

// A record that this version cannot decode is shown as it is, and hides no other.
func TestAuditOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	record := func(seq int, took string) string {
		return fmt.Sprintf(`{"seq":%d,"prev":"%064d","specversion":"1.0","id":"b-%d","type":"run.caisson.exec.ended","time":"2026-01-02T03:04:05Z","data":{"exec_id":"1","duration":"%s"}}`+"\n", seq, 0, seq, took)
	}
	text := record(1, "1.669210387s") + record(2, "1.6692103870000001s") + record(3, "2s") // the second has more than nine digits
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000001.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, call := range [][]string{{"tail"}, {"query", "--type", "exec.*"}} {
		out := daemon.Run(t, append([]string{"audit", "--dir", dir}, call...)...).Stdout
		if strings.Count(out, "\n") != 3 || !strings.Contains(out, "duration=1.669210387s") || !strings.Contains(out, `"duration":"1.6692103870000001s"`) || !strings.Contains(out, "duration=2s") {
			t.Errorf("%q: %s", call, out)
		}
	}
}

// A daemon that is killed at any time has a record of every command whose caller got an
// answer, and its log is whole.
func TestAuditSurvivesKills(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "worker")
	var mu sync.Mutex
	var answered []string
	for round := 1; round <= 4; round++ {
		stop := make(chan struct{})
		var callers sync.WaitGroup
		for w := range 2 {
			callers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					id := fmt.Sprintf("req-%d-%d-%d", d.PID(), w, i)
					cmd := d.Command(t.Context(), "exec", "worker", "--", "true")
					cmd.Env = append(cmd.Env, "CAISSON_REQUEST_ID="+id)
					if cmd.Run() == nil {
						mu.Lock()
						answered = append(answered, id)
						mu.Unlock()
					}
				}
			})
		}
		await(t, "answers of this daemon", func() bool { // commands run, and the daemon is killed among them
			mu.Lock()
			defer mu.Unlock()
			return len(answered) >= 5*round
		})
		d.Kill(t)
		close(stop)
		d.Launch(t) // who waits for an answer connects again
		callers.Wait()
	}
	log := d.Run(t, "audit", "query", "--json", "--type", "exec.ended").Stdout
	lost := slices.DeleteFunc(slices.Clone(answered), func(id string) bool { return strings.Contains(log, `"request_id":"`+id+`"`) })
	if len(answered) < 20 || len(lost) > 0 {
		t.Errorf("%d of %d answered commands have no record: %q", len(lost), len(answered), lost)
	}
	if r := d.Try("audit", "verify"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "whole: ") {
		t.Errorf("verify: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if starts := parseEvents(t, d.Run(t, "audit", "query", "--json", "--type", "daemon.*").Stdout); len(starts) != 5 {
		t.Errorf("%d starts are recorded, want 5", len(starts))
	}
	edited := filepath.Join(d.Root, "audit", "00000000000000000001.jsonl")
	text, err := os.ReadFile(edited)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(edited, []byte(strings.Replace(string(text), `"exit_code":0`, `"exit_code":1`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := d.Try("audit", "verify"); r.Code != 1 || !strings.Contains(r.Stdout, "broken [SBX-902]") {
		t.Errorf("verify a changed log: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := d.User(t, ann).Try("audit", "verify", "--dir", filepath.Join(d.Root, "audit")); r.Code != 125 || !strings.Contains(r.Stderr, "SBX-805") {
		t.Errorf("another user reads it: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// With audit.required nothing runs that cannot be recorded. What runs ends with a record.
func TestAuditRequired(t *testing.T) {
	t.Parallel()
	d := harness.New(t)
	d.Config = "audit: {required: true}\n"
	dir := filepath.Join(d.Root, "audit")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.Launch(t)
	t.Cleanup(func() { d.Stop(t) })
	d.Run(t, "create", "--name", "worker")
	job := strings.TrimSpace(d.Run(t, "exec", "-d", "worker", "--", "sleep", "3").Stdout)
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = filler.Write(make([]byte, size))
		}
	}
	full := func() bool {
		r := d.Try("exec", "worker", "--", "touch", "/tmp/ran")
		return r.Code == 125 && strings.Contains(r.Stderr, "SBX-901")
	}
	for deadline := time.Now().Add(10 * time.Second); !full(); { // the last page of the log has room
		if time.Now().After(deadline) {
			t.Fatal("commands run with a full audit disk")
		}
	}
	if r := d.Try("ping"); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "records are required and cannot be written [SBX-901]") {
		t.Errorf("ping: code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	d.Refused(t, "SBX-901", "exec", "--json", "worker", "--", "touch", "/tmp/must-not")
	d.Refused(t, "SBX-901", "run", "--json", "--", "true")
	d.Refused(t, "SBX-901", "create", "-o", "json", "--name", "other")
	if l := list(t, d); len(l) != 1 {
		t.Errorf("a sandbox without a record: %+v", l)
	}
	d.Run(t, "wait", "worker", job)
	if log := d.Run(t, "audit", "query", "--json", "--type", "exec.ended").Stdout; !strings.Contains(log, `"exec_id":"`+job+`"`) {
		t.Errorf("the end of what ran has no record: %s", log)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); d.Try("exec", "worker", "--", "true").Code != 0; time.Sleep(100 * time.Millisecond) { // it looks each second
		if time.Now().After(deadline) {
			t.Fatal("commands do not run with room again")
		}
	}
	if r := d.Try("exec", "worker", "--", "ls", "/tmp/must-not"); r.Code != 1 {
		t.Errorf("the refused command ran: %d %s", r.Code, r.Stdout)
	}
	d.Run(t, "rm", "--force", "worker")
	d.Run(t, "audit", "verify")
}
