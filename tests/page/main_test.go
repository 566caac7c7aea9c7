// Package page works with the daemon's page as an operator does, in a real browser, and
// attacks it as other sites and users of the host would.
package page

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// daemon serves the page for all tests but those that end it.
var daemon *harness.Daemon

const settings = `
page: {listen: "127.0.0.1:0"}
profiles:
  watched: {alerts: {refusals: 1}}
`

func TestMain(m *testing.M) {
	os.Exit(harness.MainWith(m, &daemon, func(d *harness.Daemon) { d.Config = settings }))
}
