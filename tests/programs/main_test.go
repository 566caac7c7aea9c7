// Package programs runs real programs of the host in sandboxes with the defaults, one for
// each row of docs/reference/programs.md that can be run here.
package programs

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

var daemon *harness.Daemon

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &daemon)) }

// packages are what the image is made of; scripts/setup.sh installs them.
var packages = strings.Fields("nodejs python3 gcc libc6-dev git passwd openjdk-17-jre-headless iproute2 fakeroot valgrind")

// makeImage makes the image of all tests.
func makeImage(t *testing.T) {
	t.Helper()
	args := []string{"image", "from-host", "programs"}
	for _, p := range packages {
		args = append(args, "--package", p)
	}
	daemon.Run(t, args...)
	t.Cleanup(func() { daemon.Run(t, "image", "rm", "programs") })
}
