package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/execs"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// spoken is a command that spoke at three times, of which the last is not known.
func spoken(at time.Time) *servertest.Fake {
	return &servertest.Fake{
		Infos: []runtime.Info{{ID: "id-a", Name: "a", Args: []string{"x"}}, {ID: "id-b", Name: "b", Args: []string{"x"}}},
		OnLogs: func(_ context.Context, _ string, o runtime.LogOptions, stdout, stderr io.Writer) error {
			offset := int64(0)
			say := func(came time.Time, text string) {
				from := max(0, o.StdoutOffset-offset)
				if !o.Since.IsZero() && came.Before(o.Since) || !o.Until.IsZero() && came.After(o.Until) || from >= int64(len(text)) {
					offset += int64(len(text))
					return
				}
				if p, ok := stdout.(runtime.Placer); ok {
					_ = p.Place(offset+from, came) // the client's writers have the errors
				}
				_, _ = io.WriteString(stdout, text[from:])
				offset += int64(len(text))
			}
			say(at, "one\ntw")
			say(at.Add(time.Second), "o\nthree")
			if o.Follow {
				say(at.Add(2*time.Second), "\nfour\n")
			}
			if o.StderrOffset == 0 && o.Stream == "" {
				if p, ok := stderr.(runtime.Placer); ok {
					_ = p.Place(0, time.Time{})
				}
				_, _ = io.WriteString(stderr, "?\n")
			}
			return nil
		},
	}
}

// A line has the time of its first byte, however many parts it came in.
func TestLogsTimes(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 120_000_000, time.UTC)
	const first, second, third = "2026-01-02T15:04:05.120000000Z ", "2026-01-02T15:04:06.120000000Z ", "2026-01-02T15:04:07.120000000Z "
	since := at.Add(time.Second).Format(time.RFC3339Nano)
	for line, want := range map[string]string{
		"logs -t a": first + "one\n" + first + "two\n" + second + "three", "logs --timestamps --follow a": first + "one\n" + first + "two\n" + second + "three\n" + third + "four\n",
		"logs -t --tail 2 a": first + "two\n" + second + "three", "logs -t -f -n 1 a": second + "three\n" + third + "four\n",
		"logs --since " + since + " a": "o\nthree", "logs -t --since " + since + " a": second + "o\n" + second + "three",
		"logs --since 1767366246.12 a": "o\nthree", "logs --since 1000000h a": "one\ntwo\nthree", "logs --since 1s a": "",
		"logs --since " + since + " -f -n 1 a": "three\nfour\n",
		"logs --until " + since + " a":         "one\ntwo\nthree", "logs --until 1767366245.5 a": "one\ntw", "logs --until 1767366245.5 -n 1 a": "tw",
		"logs -t --offset 5 a":                    first + "wo\n" + second + "three",
		"logs -t --all":                           "a | " + first + "one\na | " + first + "two\na | " + second + "three\nb | " + first + "one\nb | " + first + "two\nb | " + second + "three\n",
		"logs -t --all --tail 1 --since " + since: "a | " + second + "three\nb | " + second + "three\n",
	} {
		code, stdout, stderr := invoke(t, spoken(at), "", strings.Fields(line)...)
		if code != 0 || stdout != want || strings.Contains(line, "-t") && strings.Contains(stderr, "?") && !strings.Contains(stderr, "- ?\n") {
			t.Errorf("%s: %d\ngot  %q\nwant %q\n%s", line, code, stdout, want, stderr)
		}
	}
	for value, want := range map[string]string{
		"yesterday": "neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h [", "2d": "did you mean 48h?", "10min": "did you mean 10m?", "1week": "did you mean 168h?",
		"5 minutes": "did you mean 5m?", "2026-01-02": "did you mean 2026-01-02T00:00:00Z?", "2026-01-02 15:04:05+01:00": "did you mean 2026-01-02T14:04:05Z?", "-5m": "neither",
	} {
		if code, _, stderr := invoke(t, spoken(at), "", "logs", "--since", value, "a"); code != cli.ExitRuntime || !strings.Contains(stderr, want) {
			t.Errorf("--since %q: %d, %s", value, code, stderr)
		}
	}
}

func TestLogsTimesAsJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	_, stdout, _ := invoke(t, spoken(at), "", "logs", "--json", "-t", "--since", "2026-01-02T15:04:05Z", "--offset", "1", "a")
	type logTime struct {
		Offset int64
		Time   *time.Time
	}
	var got struct {
		StdoutText    string    `json:"stdout_text"`
		StdoutSkipped int64     `json:"stdout_skipped"`
		StdoutTimes   []logTime `json:"stdout_times"`
		StderrTimes   []logTime `json:"stderr_times"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err, stdout)
	}
	second := at.Add(time.Second)
	if want := []logTime{{Offset: 1, Time: &at}, {Offset: 6, Time: &second}}; got.StdoutText != "ne\ntwo\nthree" || got.StdoutSkipped != 0 || !slices.EqualFunc(got.StdoutTimes, want, func(a, b logTime) bool {
		return a.Offset == b.Offset && execs.SameTime(a.Time, b.Time)
	}) {
		t.Errorf("got %s", stdout)
	}
	if len(got.StderrTimes) != 1 || got.StderrTimes[0].Time != nil {
		t.Errorf("a time that is not known: %s", stdout)
	}
	if _, stdout, _ := invoke(t, spoken(at), "", "logs", "--json", "a"); strings.Contains(stdout, "times") {
		t.Errorf("nobody asked for times: %s", stdout)
	}
}

// What follows bytes that are left out is a line of its own.
func TestLogsTimesOfAGap(t *testing.T) {
	f := &servertest.Fake{OnLogs: func(_ context.Context, _ string, _ runtime.LogOptions, stdout, _ io.Writer) error {
		_ = stdout.(runtime.Placer).Place(0, time.Unix(1, 0))
		_, _ = io.WriteString(stdout, "one\ntw")
		_ = stdout.(runtime.Skipper).Skip(100)
		_ = stdout.(runtime.Placer).Place(106, time.Unix(2, 0))
		_, _ = io.WriteString(stdout, "end\n")
		return nil
	}}
	const want = "1970-01-01T00:00:01.000000000Z one\n1970-01-01T00:00:01.000000000Z tw\n1970-01-01T00:00:02.000000000Z end\n"
	if code, stdout, stderr := invoke(t, f, "", "logs", "-t", "a"); code != 0 || stdout != want || !strings.Contains(stderr, "100 bytes of stdout are left out") {
		t.Errorf("%d %q %s", code, stdout, stderr)
	}
}
