package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// On a terminal a stream draws one table in place, no larger than the terminal. One answer
// scrolls like the output of any command.
func TestStatsOnTerminal(t *testing.T) {
	f := &servertest.Fake{OnStats: func(runtime.StatsSelection, bool) (list []runtime.SandboxStats, err error) {
		for i := range 20 {
			list = append(list, runtime.SandboxStats{Name: fmt.Sprintf("box%d\x1b[31m", i), MemoryLimitBytes: 1 << 30})
		}
		return list, nil
	}}
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	shown := func(args ...string) string {
		master, slave := openPTY(t)
		resize(t, master, 10, 40)
		var text strings.Builder
		read := make(chan struct{})
		go func() {
			defer close(read)
			buf := make([]byte, 4096)
			for {
				n, err := master.Read(buf)
				text.Write(buf[:n])
				if err != nil { // the slave is closed
					return
				}
			}
		}()
		if code := whole.Run(context.Background(), args, nil, slave, slave); code != 0 {
			t.Errorf("%q: exit code %d", args, code)
		}
		slave.Close()
		await(t, "the end of the terminal", read)
		return text.String()
	}
	drawn := shown("stats")
	frames := strings.Split(drawn, "\x1b[H")
	if len(frames) != 3 || frames[0] != "" || strings.Contains(drawn, "\x1b[31m") {
		t.Fatalf("%q; want two frames", drawn)
	}
	lines := strings.Split(strings.TrimSuffix(frames[2], "\x1b[J"), "\r\n")
	if len(lines) != 10 || !strings.HasPrefix(lines[0], "NAME") || !strings.HasPrefix(lines[8], "… 13 more") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\x1b[K")); n > 40 {
			t.Errorf("%q has %d columns", line, n)
		}
	}
	if once := shown("stats", "--no-stream"); strings.Contains(once, "\x1b") || !strings.Contains(once, "box19") {
		t.Errorf("%q", once)
	}
}
