package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// asking are commands that ask by netlink again and again, as many as must wait for each
// other. Each adds a byte to a file for each answer, and ends at the first error.
const asking = `for i in 1 2 3 4 5 6 7 8; do
  { while ip addr >/dev/null && echo >> answers; do :; done; echo > failed; } &
done
wait`

// PID 1 answers for netlink sockets by itself: neither the end of its daemon nor a pause
// in between is an error for a command.
//
//caisson:kernel
func TestNetlinkWithoutADaemon(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	dir := workspace(t, os.Getuid(), os.Getgid())
	answers := filepath.Join(dir, "answers")
	count := func() int64 {
		if st, err := os.Stat(answers); err == nil {
			return st.Size()
		}
		return 0
	}
	progress := func(when string) {
		t.Helper()
		before := count()
		await(t, "answers "+when, func() bool { return count() >= before+20 })
	}
	box(t, d, "asks", "--workspace", dir)
	d.Run(t, "exec", "-d", "asks", "--", "sh", "-c", asking)
	progress("at first")
	for range 20 {
		d.Run(t, "pause", "asks")
		before := count()
		if after := count(); after != before {
			t.Errorf("%d answers while all is paused", after-before)
		}
		d.Run(t, "resume", "asks")
	}
	progress("after the pauses")
	d.Kill(t)
	progress("without a daemon")
	d.Launch(t)
	progress("with the next daemon")
	if _, err := os.Stat(filepath.Join(dir, "failed")); err == nil {
		t.Error("a question was refused")
	}
	d.Run(t, "rm", "--force", "asks")
}
