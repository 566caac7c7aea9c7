// Package sdk runs the clients in other languages against a real daemon, packed and
// installed as their users have them.
package sdk

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves all tests but those that kill it.
var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }
