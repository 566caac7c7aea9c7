// Package cost tests what a request may cost: that input is bounded in time and memory, and
// that a greedy caller leaves a modest one its share.
package cost

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }
