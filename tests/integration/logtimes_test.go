package integration

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// stampWidth is the width of a time before a line, in bytes.
const stampWidth = len("2026-01-02T15:04:05.000000000Z ")

// timedLines are the lines of logs --timestamps, and when they came. Times do not go back.
func timedLines(t *testing.T, text string) (lines []string, came []time.Time) {
	t.Helper()
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || len(stamp)+1 != stampWidth {
			t.Fatalf("%q: %v", line, err)
		}
		if n := len(came); n > 0 && at.Before(came[n-1]) {
			t.Errorf("%q came after %v", line, came[n-1])
		}
		lines, came = append(lines, rest), append(came, at)
	}
	return lines, came
}

// Output is shown with the times at which it came and from a time on, over the command
// line and over HTTP, also of a daemon that was not there when it came.
func TestLogsInTime(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "speaker")
	before := time.Now()
	id := start(t, d, "speaker", "sh", "-c", "echo one; sleep 0.3; printf tw; sleep 0.1; echo o; echo err >&2; sleep 0.3; echo three; sleep 1000")
	await(t, "three words", func() bool { return ps(t, d, "speaker")[0].StdoutBytes == 14 })
	after := time.Now()
	timed := func(flags ...string) string {
		t.Helper()
		return d.Run(t, append([]string{"logs", "-t", "--exec", id}, append(flags, "speaker")...)...).Stdout
	}
	first := timed()
	lines, came := timedLines(t, first)
	if strings.Join(lines, "") != "one\ntwo\nthree\n" {
		t.Fatalf("got %q", first)
	}
	for i, least := range []time.Duration{0, 250 * time.Millisecond, 350 * time.Millisecond} {
		if i > 0 && came[i].Sub(came[i-1]) < least || came[i].Before(before) || came[i].After(after) {
			t.Errorf("%q came at %v: the command began after %v, and had said all at %v", lines[i], came, before, after)
		}
	}
	third := came[2].Format(time.RFC3339Nano)
	if r := d.Try("logs", "-t", "--exec", id, "--stream", "stderr", "speaker"); !strings.HasSuffix(r.Stderr, "Z err\n") {
		t.Errorf("standard error: %q", r.Stderr)
	}

	d.Kill(t)
	d.Launch(t)
	if again := timed(); again != first {
		t.Errorf("a later daemon: %q, not %q", again, first)
	}
	for flags, want := range map[string]string{
		"--since " + third: "three\n", "--since 1h": "one\ntwo\nthree\n", "--since 0s": "", "--tail 1": "three\n",
		"--until 1h": "", "--until " + came[1].Format(time.RFC3339Nano): "one\ntw", "--follow --until 0s": "one\ntwo\nthree\n",
		"--since " + came[1].Format(time.RFC3339Nano) + " --tail 5": "two\nthree\n", fmt.Sprintf("--since %d", before.Unix()-1): "one\ntwo\nthree\n",
	} {
		if lines, _ := timedLines(t, timed(strings.Fields(flags)...)); strings.Join(lines, "") != want {
			t.Errorf("%s: %q, want %q", flags, lines, want)
		}
	}
	if code, got := call(t, d, "GET", "/v1/sandboxes/speaker/logs?timestamps&exec_id="+id+"&since="+url.QueryEscape(third), ""); code != 200 || got != `{"stdout":{"offset":8,"text":"three\n","time":"`+third+"\"}}\n" {
		t.Errorf("%d %s", code, got)
	}
}

// What a command writes while there is no daemon comes when the next one reads it.
func TestLogsInTimeWithoutADaemon(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, "")
	box(t, d, "counter")
	id := start(t, d, "counter", "sh", "-c", counting)
	await(t, "output", func() bool { return ps(t, d, "counter")[0].StdoutBytes > 100 })
	follow := beside(t, d, "logs", "-t", "-f", "--exec", id, "counter")
	for range 3 {
		await(t, "more", func() bool {
			n := len(follow.stdout())
			time.Sleep(50 * time.Millisecond) // nothing announces more output
			return len(follow.stdout()) > n
		})
		d.Kill(t)
		time.Sleep(100 * time.Millisecond) // the command goes on without a daemon
		d.Launch(t)
	}
	d.Run(t, "exec", "counter", "--", "touch", "/tmp/stop")
	if code := follow.end(t); code != 0 {
		t.Errorf("logs ended with %d: %s", code, follow.stderr())
	}
	lines, _ := timedLines(t, follow.stdout())
	checkCount(t, "logs -t -f", strings.Join(lines, ""), 100)
	if again := d.Run(t, "logs", "-t", "--exec", id, "counter").Stdout; again != follow.stdout() {
		t.Errorf("later the lines have other times than when they came: %d and %d bytes", len(again), len(follow.stdout()))
	}
}

// Times neither lose a byte of much output nor of many lines, and a slow reader gets all.
func TestLogsOfMuchInTime(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	d := harness.StartWith(t, "sandboxes: {kept_output: 3G}\n")
	box(t, d, "loud", "--cpus", "2")
	long := strings.Repeat("x", 4095) + "\n"
	for name, tt := range map[string]struct {
		script string
		pause  time.Duration
		lines  int
		line   func(i int) string
	}{
		"much": {fmt.Sprintf("yes %s | head -c %d", strings.TrimSpace(long), gib), 0, gib / len(long), func(int) string { return long }},
		"many lines, read slowly": {
			"i=0; while [ $i -lt 30 ]; do seq $((i*10000)) $((i*10000+9999)); i=$((i+1)); usleep 100000; done", 10 * time.Millisecond,
			300_000, func(i int) string { return fmt.Sprintln(i) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "exec", "-d", "--output-limit", "1500M", "loud", "--", "sh", "-c", tt.script).Stdout)
			cmd := d.Command(t.Context(), "logs", "-t", "-f", "--exec", id, "loud")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			n, last := 0, ""
			for r := bufio.NewReaderSize(out, 64<<10); ; n++ {
				text, err := r.ReadString('\n')
				if err == io.EOF && text == "" {
					break
				}
				if len(text) < stampWidth || text[:stampWidth] < last || text[stampWidth:] != tt.line(n) {
					t.Fatalf("line %d is %.60q, after %q: %v", n, text, last, err)
				}
				last = text[:stampWidth]
				if n%2000 == 0 {
					time.Sleep(tt.pause) // a slow reader
				}
			}
			if err := cmd.Wait(); err != nil || n != tt.lines {
				t.Errorf("%d lines, want %d: %v", n, tt.lines, err)
			}
		})
	}
}
