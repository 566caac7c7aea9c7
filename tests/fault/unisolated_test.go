package fault

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// A sandbox without isolation leaves as little as any other, wherever the daemon is killed or
// a step fails.
func TestUnisolatedBreaks(t *testing.T) {
	t.Parallel() // beside tests that wait
	b := newBreakable(t, `profiles: {host: {isolation: none, timeout: 1m}}
unisolated: {profiles: [host], user: "43210"}
`)
	for _, step := range need.Turn(t, strings.Fields("claim output ids rootfs own init cgroup container limits start hello posture record")) {
		t.Run("killed in "+step, func(t *testing.T) {
			b.createKilled(t, step, "--profile", "host")
			b.empty(t)
		})
	}
	for _, step := range need.Turn(t, strings.Fields("ids rootfs own container limits posture")) {
		t.Run("failed in "+step, func(t *testing.T) {
			b.createFailed(t, step, "--profile", "host")
			b.empty(t)
		})
	}
	for _, step := range need.Turn(t, strings.Fields("container own rootfs claim")) {
		t.Run("killed in the removal of "+step, func(t *testing.T) {
			b.Run(t, "create", "--name", "doomed", "--profile", "host")
			b.removeKilled(t, step)
			b.empty(t)
		})
	}
}
