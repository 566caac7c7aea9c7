// Command caisson-gateway carries what sandboxes send out, by the policies that
// the daemon gives it. caissond starts it with one end of a connection as
// descriptor 3; see package gateway/control.
//
// It parses hostile bytes, so before it reads any it gives up all that it can
// do without; see package confine. It stays in the host's network namespace,
// from which it dials. When the daemon is gone, it ends.
//
// It has a second, small task, as it is the program that talks to servers without rights: in
// the sandbox of a build it fetches what ADD names; see fetch.
//
// The Go runtime is told not to look for the CPU limit of its cgroup again and
// again, for which it would keep files open.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/caisson-run/caisson/cmd/caisson-gateway/confine"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/hostaddr"
	"github.com/caisson-run/caisson/gateway/secret"
)

var version, commit = "unknown", "unknown" // set by the linker

// collectAt is how much memory may grow, in percent, before it is gone through:
// connections that wait are most of it, and not garbage.
const collectAt = 25

// The first thread is the one that the kernel keeps the parent's death for.
func init() { runtime.LockOSThread() }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == fetchVerb {
		if err := fetch(args[1], args[2:]); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	flags := flag.NewFlagSet("caisson-gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	uid := flags.Uint("uid", 0, "`user` to run as")
	gid := flags.Uint("gid", 0, "`group` to run as")
	ask := flags.Bool("version", false, "print the version and end")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *ask {
		fmt.Fprintf(stdout, "caisson-gateway %s (%s)\n", version, commit)
		return 0
	}
	if err := serve(confine.User{UID: uint32(*uid), GID: uint32(*gid)}); err != nil {
		fmt.Fprintln(stderr, "caisson-gateway:", err)
		return 1
	}
	return 0
}

// serve confines this process and serves until the daemon is gone.
func serve(u confine.User) error {
	conn, err := inherited()
	if err != nil {
		return fmt.Errorf("take over descriptor %d: %w", control.FD, err)
	}
	kernel, err := hostaddr.Open()
	if err != nil {
		return err
	}
	secrets, secretsErr := secret.NewStore() // while memory may be locked; without it no secret is taken
	roots := hostRoots()                     // while there are files
	if err := confine.Confine(u); err != nil {
		return err
	}
	debug.SetGCPercent(collectAt)
	ended := make(chan error, 1)
	go func() { ended <- newServer(conn, kernel.Local, secrets, secretsErr, roots).serve() }() // off the first thread, which is slow to wake
	return <-ended
}

// inherited is the connection to the daemon.
func inherited() (*net.UnixConn, error) {
	f := os.NewFile(control.FD, "control")
	if f == nil {
		return nil, os.ErrInvalid
	}
	c, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("it is no unix socket; caissond alone starts this program")
	}
	return conn, nil
}
