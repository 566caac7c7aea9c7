package shimcall

import (
	"flag"
	"io"
)

// Program is the file name of the shim's program.
const Program = "containerd-shim-runc-v2"

// SocketsEnv names the directory of the shims' sockets, in the environment of a
// start.
const SocketsEnv = "CAISSON_SHIM_SOCKETS"

// The actions of a call.
const (
	Start  = "start"
	Delete = "delete"
)

// Call is what containerd says in its arguments (containerd, core/runtime/v2,
// shim_util.go).
type Call struct {
	Action    string
	Namespace string
	ID        string // of the container
	Address   string // of containerd's own socket
}

// Parse reads the arguments, without the program's name. What it does not know is
// not ok.
func Parse(args []string) (c Call, ok bool) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.Namespace, "namespace", "", "")
	flags.StringVar(&c.ID, "id", "", "")
	flags.StringVar(&c.Address, "address", "", "")
	flags.String("publish-binary", "", "")
	flags.String("bundle", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		return Call{}, false
	}
	c.Action = flags.Arg(0)
	return c, c.Namespace != "" && c.ID != "" && c.Address != ""
}

// Place is where a call is made.
type Place struct {
	Bundle  string // directory of the container's spec, and of what the shim keeps of it
	Sockets string // directory of the shims' sockets; needed for a start
	Program string // path of the shim's program
}

// Answer returns what the shim's program would say to the call. Not ok is what only
// the program itself can do.
func (c Call) Answer(at Place) (answer []byte, ok bool) {
	Failpoint(c.Action + "/called")
	switch {
	case c.Action == Start && at.Sockets != "":
		return c.start(at)
	case c.Action == Delete:
		return c.gone(at.Bundle)
	}
	return nil, false
}
