// Package agentsandbox answers for a pod as the runtimes of agent-sandbox do inside of theirs: the
// commands and files are those of the pod's sandbox, so that any image works. There is no
// authentication, as in the original: who reaches the pod's address may run commands.
package agentsandbox

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox/process/v1/processv1connect"
)

// Caisson is what is called of the daemon.
type Caisson interface {
	Exec(ctx context.Context, ref string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error)
	Kill(ctx context.Context, ref, exec string, signal syscall.Signal, all bool) error
	Resize(ctx context.Context, ref, exec string, size api.Size) error
	Stat(context.Context, *caissonv1.StatRequest) (*caissonv1.FileInfo, error)
	ListDir(context.Context, *caissonv1.ListDirRequest) (*caissonv1.ListDirResponse, error)
	ReadFile(ctx context.Context, req *caissonv1.ReadFileRequest, w io.Writer) (*caissonv1.FileInfo, error)
	WriteFile(ctx context.Context, header *caissonv1.WriteFileHeader, content io.Reader) (*caissonv1.FileInfo, error)
	RemoveFile(context.Context, *caissonv1.RemoveFileRequest) (*caissonv1.RemoveFileResponse, error)
}

// Sandbox is one that is answered for.
type Sandbox struct {
	ID      string
	Runtime string // a name that Ports knows
	Address string // of the pod; empty: only Dial reaches it
	// Admits says whether a client may connect to a port at Address; nil: nobody may.
	Admits  func(port uint16, client netip.Addr) bool
	Dir     string // absolute: commands begin there, and all paths lie below it
	Started time.Time
	// Env returns the container's variables, without values of Secrets.
	Env func(context.Context) (map[string]string, error)
}

// Ports are those of a runtime; nil is one that is not known.
func Ports(runtime string) []uint16 {
	var ports []uint16
	for _, s := range services[runtime] {
		ports = append(ports, s.port)
	}
	return ports
}

// service is one port of a runtime.
type service struct {
	port    uint16
	handler func(*runtime) http.Handler
	http2   bool
}

var services = map[string][]service{
	"python":   {{port: 8888, handler: (*runtime).python}},
	"sandboxd": {{port: 8080, handler: (*runtime).files}, {port: 9090, handler: (*runtime).processes, http2: true}},
}

// runtime answers for one sandbox.
type runtime struct {
	Sandbox
	caisson Caisson
	output  *budget
	table   table
}

// largestMessage is the most of a request of ProcessService, in bytes.
const largestMessage = 4 << 20

func (r *runtime) processes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(processv1connect.NewProcessServiceHandler(r, connect.WithReadMaxBytes(largestMessage)))
	return mux
}
