//go:build failpoints

package failpoint

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Env names the environment variable of a daemon that was built with
// the tag failpoints: POINT=kill ends it there with SIGKILL, POINT=error lets
// that step fail. "@FILE" reads that from FILE each time, so that one daemon
// can be told different things one after the other; an empty or absent file is
// none. The points are the calls of At.
const Env = "CAISSON_FAILPOINT"

// Enabled reports whether the program has failpoints.
const Enabled = true

// At does what the environment says for a point of the runtime's work.
func At(point string) error {
	name, action, _ := strings.Cut(armed(), "=")
	if name != point {
		return nil
	}
	switch action {
	case "kill":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "error":
		return sbxerr.New(sbxerr.Internal, "runtime.failpoint", "failpoint %s", point)
	}
	return nil
}

func armed() string {
	value := os.Getenv(Env)
	file, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return value
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
