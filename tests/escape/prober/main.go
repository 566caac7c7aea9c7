// Prober attempts what nothing inside a sandbox may do, and says what came of
// each attempt. The tests of the folder above run it twice: in a sandbox, where
// every attempt has to fail, and unconfined, where it has to succeed, since an
// attempt that fails everywhere proves nothing.
//
// It is one static program without dependencies on what is around it. Its
// other modes fill a sandbox up (bomb), or what its user may have (exhaust, nest),
// sweep all system calls (sweep), take kernel memory (eat), hold something (hold), lock and
// watch device nodes (nodes), and stand in for runc (by that name).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// around is what the tests made on the host for the attempts to find.
var around struct {
	pid      int    // a process
	initPID  int    // whose /proc is looked into: PID 1 but for controls
	port     int    // a TCP listener on the loopback
	abstract string // an abstract unix socket
	path     string // a unix socket in the file system
	key      int    // of a System V segment, semaphore and queue
	name     string // of a POSIX segment and queue
	suid     string // a set-user-id copy of this program
	canary   string // SHA-256 of an argument of a process of the host
	control  bool   // unconfined: attempt nothing that could harm
}

// The main thread is never thrown away, and /proc/self is its view: no attempt
// may run on it.
func init() { runtime.LockOSThread() }

func main() {
	if filepath.Base(os.Args[0]) == "runc" {
		exit(tamper(os.Args))
	}
	found := census() // before anything else opens a descriptor
	// A thread that the kernel kills takes its right to run goroutines with it: on
	// one CPU nobody would be left to say so.
	runtime.GOMAXPROCS(max(runtime.NumCPU(), 4))
	if len(os.Args) < 2 {
		exit(errors.New("usage: prober run|one|sweep|bomb|hold|euid …"))
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "run":
		parse(args)
		if around.control {
			shareRoot()
		}
		exit(runAll(found))
	case "one":
		exit(runOne(parse(args)))
	case "sweep":
		exit(sweep())
	case "bomb":
		exit(bomb(args))
	case "hold":
		exit(hold(args))
	case "eat":
		exit(eat(args))
	case "exhaust":
		exit(exhaust())
	case "nodes":
		exit(nodes(args))
	case "nest":
		exit(nest())
	case "abort":
		exit(abort())
	case "roam":
		exit(roam())
	case "euid":
		fmt.Println(os.Geteuid())
	default:
		exit(fmt.Errorf("no mode %q", os.Args[1]))
	}
}

// parse reads the flags that tell what is around, and returns the rest.
func parse(args []string) []string {
	f := flag.NewFlagSet("prober", flag.ExitOnError)
	f.IntVar(&around.pid, "pid", 0, "process of the host")
	f.IntVar(&around.initPID, "init", 1, "process whose /proc is looked into")
	f.IntVar(&around.port, "port", 0, "TCP port on the host's loopback")
	f.StringVar(&around.abstract, "abstract", "", "abstract unix socket of the host")
	f.StringVar(&around.path, "path", "", "unix socket of the host")
	f.IntVar(&around.key, "key", 0, "key of System V objects of the host")
	f.StringVar(&around.name, "name", "", "name of POSIX objects of the host")
	f.StringVar(&around.suid, "suid", "", "set-user-id copy of this program")
	f.StringVar(&around.canary, "canary", "", "SHA-256 of an argument of a process of the host")
	f.BoolVar(&around.control, "control", false, "this is the unconfined run")
	_ = f.Parse(args) // it exits on an error
	passed = args[:len(args)-f.NArg()]
	return f.Args()
}

// passed are the flags, for children.
var passed []string

func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "prober:", err)
	os.Exit(1)
}

// line is what is printed of one attempt.
type line struct {
	ID      string   `json:"id"`
	Attempt string   `json:"attempt"`
	Outcome string   `json:"outcome"`
	Want    []string `json:"want"`
}

func runAll(found string) error {
	out := json.NewEncoder(os.Stdout)
	for _, p := range probes() {
		outcome := ""
		switch {
		case p.name == censusName:
			outcome = found
		case p.alone:
			outcome = inChild(p.name)
		default:
			outcome = inThread(p.try)
		}
		if err := out.Encode(line{p.id, p.name, outcome, p.want}); err != nil {
			return err
		}
	}
	return nil
}

// shareRoot lets the mounts of a control, whose mount namespace is its own, be
// propagated as those of most hosts are.
func shareRoot() {
	if err := unix.Mount("", "/", "", unix.MS_SHARED, ""); err != nil {
		exit(err)
	}
}

func runOne(names []string) error {
	for _, p := range probes() {
		if len(names) == 1 && p.name == names[0] {
			fmt.Print(inThread(p.try))
			return nil
		}
	}
	return fmt.Errorf("no attempt %q", names)
}

// hold keeps what it was started with until its standard input ends.
func hold([]string) error {
	var b [1]byte
	for {
		if n, err := syscall.Read(0, b[:]); n == 0 || (err != nil && err != syscall.EINTR) {
			return nil
		}
	}
}
