// Package apitest is a daemon in memory, for tests of programs that use [api.Client]. It
// answers over a real socket, with real errors and streams. It runs no command: a function
// of the test decides the outcome.
//
//	daemon := apitest.New(t)
//	daemon.OnCommand = func(c apitest.Command) apitest.Outcome {
//		return apitest.Outcome{Stdout: []byte("hello\n")}
//	}
//	client := daemon.Client()
package apitest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// Command is a request to run a command.
type Command struct {
	Sandbox *caissonv1.Sandbox
	Spec    *caissonv1.ExecSpec
	Stdin   []byte // all of it: a command with an input runs when that is closed
}

// Outcome is the result of a command. Err fails the call instead: an error of
// [sbxerr.New] reaches the caller in the form of the daemon's.
type Outcome struct {
	Stdout, Stderr []byte
	ExitCode       int32
	Err            error
}

// Daemon knows sandboxes and their commands. It serves until the test ends.
type Daemon struct {
	// OnCommand runs a command; nil does nothing and succeeds. It may be called by
	// several calls at once.
	OnCommand func(Command) Outcome

	socket string

	mu    sync.Mutex
	boxes []*box // oldest first
	last  int
}

// box is a sandbox and its commands.
type box struct {
	*caissonv1.Sandbox
	spec  *caissonv1.SandboxSpec
	execs []*process
}

// New starts a daemon that ends with t.
func New(t testing.TB) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "apitest") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{socket: filepath.Join(dir, "api.sock")}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(caissonv1connect.NewSandboxServiceHandler(sandboxes{d: d}))
	mux.Handle(caissonv1connect.NewExecServiceHandler(execs{d: d}))
	srv := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(srv.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		<-served
	})
	return d
}

// Socket is where the daemon listens.
func (d *Daemon) Socket() string { return d.socket }

// Client returns a client of the daemon. The test closes it.
func (d *Daemon) Client() *api.Client { return api.Dial(d.socket) }

// create adds a sandbox, or returns that of the name with ensure.
func (d *Daemon) create(spec *caissonv1.SandboxSpec, ensure bool) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.findLocked(spec.GetName()); old != nil && spec.GetName() != "" {
		if ensure && proto.Equal(old.spec, spec) {
			return old, nil
		}
		return nil, sbxerr.New(sbxerr.Exists, "apitest.create", "there is a sandbox %q", spec.GetName())
	}
	d.last++
	id := fmt.Sprintf("sandbox%d", d.last)
	b := &box{spec: spec, Sandbox: &caissonv1.Sandbox{
		Id: id, Name: cmp.Or(spec.GetName(), id), State: "running", Image: cmp.Or(spec.GetImage(), "base"),
		Profile: cmp.Or(spec.GetProfile(), "strict"), Network: cmp.Or(spec.GetNetwork(), "none"), Labels: spec.GetLabels(),
		Session: spec.GetSession(), Task: spec.GetTask(), CreatedAt: timestamppb.Now(),
	}}
	d.boxes = append(d.boxes, b)
	return b, nil
}

// findLocked returns the sandbox with this name or ID; nil: there is none.
func (d *Daemon) findLocked(ref string) *box {
	i := slices.IndexFunc(d.boxes, func(b *box) bool { return b.Id == ref || b.Name == ref })
	if i < 0 {
		return nil
	}
	return d.boxes[i]
}

func (d *Daemon) find(ref string) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.findLocked(ref); b != nil {
		return b, nil
	}
	return nil, sbxerr.New(sbxerr.NotFound, "apitest.find", "no sandbox %q", ref)
}

func (d *Daemon) remove(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes = slices.DeleteFunc(d.boxes, func(other *box) bool { return other == b })
	for _, p := range b.execs {
		p.endLocked(Outcome{}, &caissonv1.Result{Source: "runtime", Reason: "canceled"})
	}
}
