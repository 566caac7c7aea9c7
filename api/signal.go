package api

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// lastSignal is the highest signal number of Linux.
const lastSignal = 64

// ParseSignal reads a signal as the API takes it: TERM, SIGTERM or 15.
func ParseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= lastSignal {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, sbxerr.New(sbxerr.APIUsage, "api.signal", "%q is not a signal, give a name such as TERM or a number from 1 to %d", sbxerr.Clip(s), lastSignal)
}
