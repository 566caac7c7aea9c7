package doctor

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// Descriptors of the daemon: its own, and those that it holds for each sandbox. A
// sandbox without a command takes 3, a network takes 7 more, a running command 3.
const (
	ownFiles   = 128
	leastFiles = 3
	usualFiles = leastFiles + 7 + 3
)

// examineCounters compares what is counted for the host or for the daemon as a whole
// with what the configured number of sandboxes can take.
func examineCounters(_ context.Context, h Host) []runtime.Check {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return problem("open files of the daemon", Unknown, sbxerr.NoFiles, err)
	}
	found := judgeOwnFiles(own.Max, h.MaxSandboxes)
	for _, c := range []struct {
		sysctl, what string
		each         int64
		code         sbxerr.Code
	}{
		{"fs.file-max", "open files", h.Each.PIDs * h.Each.OpenFiles, sbxerr.NoFiles},
		{"kernel.pid_max", "processes", h.Each.PIDs, sbxerr.Processes},
		{"kernel.threads-max", "processes", h.Each.PIDs, sbxerr.Processes},
	} {
		limit, err := readCounter(c.sysctl)
		if err != nil {
			found = append(found, problem(c.sysctl, Unknown, c.code, err)...)
			continue
		}
		found = append(found, judgeCounter(c.sysctl, c.what, limit, c.each, h.MaxSandboxes, c.code)...)
	}
	return found
}

// judgeOwnFiles refuses a daemon that could not even hold idle sandboxes.
func judgeOwnFiles(hard uint64, sandboxes int) []runtime.Check {
	const name = "open files of the daemon"
	need := func(each int) uint64 { return ownFiles + uint64(sandboxes)*uint64(each) }
	detail := fmt.Sprintf("the hard limit is %d; %d sandboxes (sandboxes.max) take %d to %d", hard, sandboxes, need(leastFiles), need(usualFiles))
	status, code := OK, sbxerr.NoFiles
	switch {
	case hard < need(leastFiles):
		status, code = Fail, sbxerr.DaemonConf
	case hard < need(usualFiles):
		status = Warn
	default:
		return ok(name, detail)
	}
	remedy := fmt.Sprintf("raise the hard limit of open files to %d (LimitNOFILE= of the daemon's unit, ulimit -Hn), or lower sandboxes.max", need(usualFiles))
	return []runtime.Check{{Name: name, Status: status, Detail: detail, Code: string(code), Remedy: remedy}}
}

// judgeCounter warns where sandboxes can use up what the host counts as a whole: then
// nobody else on the host has any.
func judgeCounter(sysctl, what string, limit, each int64, sandboxes int, code sbxerr.Code) []runtime.Check {
	if n := int64(sandboxes); n == 0 || each <= (limit-1)/n {
		return ok(sysctl, fmt.Sprintf("%d %s, enough for %d sandboxes with %d each", limit, what, sandboxes, each))
	}
	return []runtime.Check{{
		Name: sysctl, Status: Warn, Code: string(code),
		Detail: fmt.Sprintf("the host has %d %s; each of %d sandboxes (sandboxes.max) may have %d", limit, what, sandboxes, each),
		Remedy: "sandboxes run, but together they can use it up: sysctl -w " + sysctl + "=" + strconv.FormatInt(saturated(each, sandboxes), 10) + " or more, or lower sandboxes.max",
	}}
}

// saturated is twice what all sandboxes may have: half is left to the host.
func saturated(each int64, sandboxes int) int64 {
	if each > math.MaxInt64/2/int64(max(1, sandboxes)) {
		return math.MaxInt64
	}
	return 2 * each * int64(sandboxes)
}

func readCounter(sysctl string) (int64, error) {
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(sysctl, ".", "/"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", sysctl, err)
	}
	return n, nil
}
