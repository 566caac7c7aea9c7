// Package agents drives sandboxes as programs of agents do, through the protocols that they
// speak.
package agents

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves all tests that need nothing special of one.
var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }
