// Package sdk runs the client libraries against the real programs.
package sdk

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves all tests that need nothing special of one.
var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }
