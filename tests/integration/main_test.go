// Package integration runs the real programs: caissond with its own
// containerd, shims and runc, and the command line in front of them.
package integration

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves all tests that need nothing special of one.
var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }
