// Package network tests what sandboxes reach, and do not, through the whole
// daemon. The daemon of these tests lives in a network namespace that stands for
// the host's: its only way out leads to another one, where what the tests call public
// is, and nothing in that leads anywhere else.
//
// What a sandbox must not reach is reached first from outside of it: a probe that
// could not succeed proves nothing.
package network

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

var (
	host   *world
	daemon *harness.Daemon
)

func TestMain(m *testing.M) {
	var err error
	if host, err = newHost(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 1
	if err = host.watch(); err == nil {
		code = harness.MainWith(m, &daemon, func(d *harness.Daemon) {
			d.Wrap = host.enter()
			d.Config = host.config()
			host.watchInside(d)
		})
	}
	if err := errors.Join(err, host.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
