// Package server serves the API of caissond with Connect: gRPC, gRPC-Web and
// HTTP+JSON from one handler. The handlers translate; what they translate to
// is behind a few interfaces.
package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/caisson/v1/caissonv1connect"
	"github.com/caisson-run/caisson/api/openapi"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/secrets"
	"github.com/caisson-run/caisson/runtime/snapshots"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/runtime/workspaces"
	"github.com/caisson-run/caisson/server/rest"
	"github.com/caisson-run/caisson/server/slow"
)

// maxMessage bounds one message of a caller, in bytes. Archives and standard
// input come in many messages.
const maxMessage = 4 << 20

// Sandboxes makes, observes and ends sandboxes. Run and Logs do not write after they
// returned; their writers are runtime.Skippers. The sandboxes of Start and Create outlive their context. Stop without
// a grace takes the daemon's. Wait returns when the sandbox has ended.
type Sandboxes interface {
	Run(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error)
	Start(ctx context.Context, req plan.Request) (runtime.Info, error)
	Create(ctx context.Context, req plan.CreateRequest) (runtime.Info, error)
	Update(ctx context.Context, ref string, req runtime.UpdateRequest) (runtime.Info, error)
	AttachFiles(ctx context.Context, ref string, req plan.AttachRequest) (runtime.Info, error)
	Pause(ctx context.Context, ref string) (runtime.Info, error)
	Resume(ctx context.Context, ref string) (runtime.Info, error)
	Restart(ctx context.Context, ref string) (runtime.Info, error)
	Clean(ctx context.Context, ref string) (runtime.Cleaned, error)
	Stop(ctx context.Context, ref string, grace *time.Duration) (runtime.Info, error)
	Wait(ctx context.Context, ref string) (runtime.Info, error)
	List(ctx context.Context) ([]runtime.Info, error)
	Past(ctx context.Context) ([]runtime.Info, error)
	Inspect(ctx context.Context, ref string) (*runtime.Detail, error)
	Remove(ctx context.Context, ref string, force bool) (id string, err error)
	Cleanup(ctx context.Context, dryRun bool) ([]runtime.Leftover, error)
	Stats(ctx context.Context, sel runtime.StatsSelection, follow bool, yield func(time.Time, []runtime.SandboxStats) error) error
	History(ctx context.Context, ref string) (*runtime.History, error)
	Logs(ctx context.Context, ref string, options runtime.LogOptions, stdout, stderr io.Writer) error
	Spec(ctx context.Context, req plan.Request) (*runtime.SpecView, error)
	PseudoFilter(ctx context.Context, req plan.Request) (string, error)
}

// Execs runs commands in live sandboxes. Exec and Attach call IO.Started before they
// write, and write each stream from the request's offset on. The command of Exec outlives
// its context by the daemon's attach_grace, so that its caller can connect again. Attach
// to a command that has ended writes the kept output and returns its result.
type Execs interface {
	Exec(ctx context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error)
	StartExec(ctx context.Context, ref string, req plan.ExecRequest) (runtime.ExecInfo, error)
	Attach(ctx context.Context, ref, exec string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error)
	Execs(ctx context.Context, ref string) ([]runtime.ExecInfo, error)
	WaitExec(ctx context.Context, ref, exec string) (runtime.ExecInfo, error)
	SendInput(ctx context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error)
	SignalExec(ctx context.Context, ref, exec string, req runtime.SignalRequest) error
	ResizeExec(ctx context.Context, ref, exec string, size plan.WinSize) error
}

// Images manages what sandboxes are made of.
type Images interface {
	List(ctx context.Context) ([]images.Image, error)
	Inspect(ctx context.Context, name string) (*images.Detail, error)
	Remove(ctx context.Context, name string) error
	Import(ctx context.Context, name string, r io.Reader, progress func(string)) (images.Imported, error)
	FromHost(ctx context.Context, req images.FromHostRequest, progress func(string)) (images.Imported, error)
	Pull(ctx context.Context, req images.PullRequest, progress func(images.PullProgress)) (images.Imported, error)
	BuildNeeds(ctx context.Context, r imageservice.BuildRequest) (images.BuildNeeds, error)
	Build(ctx context.Context, r imageservice.BuildRequest, report func(images.BuildEvent)) (images.Imported, error)
	Tag(ctx context.Context, name, newName string) (images.Imported, error)
	Save(ctx context.Context, names []string, w io.Writer) error
	Prune(ctx context.Context, r images.PruneRequest) (images.Pruned, error)
	Usage(ctx context.Context) (list []images.DiskUsage, stored int64, err error)
	PullAll(ctx context.Context, progress func(images.PullProgress), each func(images.Imported)) error
}

// Volumes manages the volumes that sandboxes can mount.
type Volumes interface {
	Create(ctx context.Context, name string, size volumes.Size) (volumes.Info, error)
	List(ctx context.Context) ([]volumes.Info, error)
	Inspect(ctx context.Context, ref string) (volumes.Info, error)
	Remove(ctx context.Context, ref string) error
	Prune(ctx context.Context, dryRun bool) ([]volumes.Info, error)
}

// Workspaces works on copy-on-write workspaces.
type Workspaces interface {
	Diff(ctx context.Context, ref string) (list []changes.Change, more bool, err error)
	Patch(ctx context.Context, ref string, control bool) (workspaces.Patch, error)
	Apply(ctx context.Context, ref string, r workspaces.Request) (workspaces.Result, error)
	Has(id string) bool
	List(ctx context.Context) ([]workspaces.Changeset, error)
	Discard(ctx context.Context, ref string) error
}

// Snapshots manages disks of sandboxes as they were once.
type Snapshots interface {
	Create(ctx context.Context, ref, name, path string) (snapshots.Info, error)
	Rewind(ctx context.Context, ref, name string) (snapshots.Rewound, error)
	Fork(ctx context.Context, ref string, count int) ([]snapshots.Fork, error)
	List(ctx context.Context) ([]snapshots.Info, error)
	Inspect(ctx context.Context, ref string) (snapshots.Info, error)
	Diff(ctx context.Context, from, to string, paths []string) (list []changes.Change, more bool, err error)
	Remove(ctx context.Context, ref string) error
	Export(ctx context.Context, ref string, w io.Writer) error
	Import(ctx context.Context, name string, r io.Reader) (snapshots.Info, error)
}

// Network answers what sandboxes may reach, and what they tried to.
type Network interface {
	CheckPolicy(ctx context.Context, q runtime.PolicyQuery, target string, addresses []netip.Addr) (runtime.PolicyVerdict, error)
	ExplainPolicy(ctx context.Context, q runtime.PolicyQuery) (runtime.PolicyView, error)
	LearnPolicy(ctx context.Context, ref string) (*runtime.Learned, error)
	Traffic(ctx context.Context, ref, since string, follow bool, yield func(runtime.TrafficEntry) error) error
}

// Forwards carries streams to ports inside sandboxes.
type Forwards interface {
	Forward(ctx context.Context, ref string, port uint16, in io.Reader, out io.Writer, connected func() error) error
}

// Spending tells what requests by routes took.
type Spending interface {
	List(ctx context.Context) ([]spend.Row, error)
}

// Secrets manages the credentials of routes, without their values.
type Secrets interface {
	List(ctx context.Context) ([]secrets.Secret, error)
	Set(ctx context.Context, name, source string, refresh time.Duration) (secrets.Secret, error)
	Remove(ctx context.Context, name string) error
}

// System says what the daemon and its host are.
type System interface {
	Versions(ctx context.Context) (runtime.Versions, error)
	Doctor(ctx context.Context) ([]runtime.Check, error)
	Capabilities(ctx context.Context) ([]runtime.Capability, error)
	HostInfo(ctx context.Context) (runtime.HostInfo, error)
	ReloadConfig(ctx context.Context) (runtime.Reloaded, error)
	// Ready is why nothing can be run now; nil if something can.
	Ready(ctx context.Context) error
	// Leaving is closed when the daemon ends the calls that wait.
	Leaving() <-chan struct{}
}

// Events is the stream of what happens on the host.
type Events interface {
	Events(ctx context.Context, since events.Since, filter events.Filter, follow bool, yield func(*events.Event) error) error
}

// Call is one call that is over.
type Call struct {
	Procedure     string      // empty for one that there is not
	Code          sbxerr.Code // of a failure
	Begun         time.Time
	Took          time.Duration
	Quiet         bool   // it changes nothing
	Trace         string // traceparent of the call (W3C Trace Context, section 3.2)
	Parent        string // span of the caller in Trace, 16 hex digits; empty for none
	RequestID     string
	Sandbox, Exec string // as the caller names them, or their IDs
}

// Deps is what the API is served from.
type Deps struct {
	Sandboxes  Sandboxes
	Execs      Execs
	Images     Images
	Volumes    Volumes
	Snapshots  Snapshots
	Templates  Templates
	Workspaces Workspaces
	System     System
	Network    Network
	Spending   Spending
	Forwards   Forwards
	Secrets    Secrets
	Files      Files
	Events     Events
	Stream     *events.Bus // takes what the API itself tells; nil takes nothing
	// Called is told of each call when it is over. It may be nil.
	Called func(Call)
	// Traced says that a call without a trace of its caller's begins one that is kept.
	Traced bool
	Log    *slog.Logger // nil discards
	// WriteTimeout ends a call whose caller takes nothing of its answer for so
	// long, or has not sent the whole of a message after the first; 0 is 30 s.
	WriteTimeout time.Duration
	// ReadTimeout is how long the first message of a caller may take to come; 0 is 30 s.
	ReadTimeout time.Duration
}

// New returns the API as an HTTP handler. Serve says how to serve it.
func New(d Deps) http.Handler {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	var streams rest.Streams
	options := connect.WithHandlerOptions(
		streams.Option(),
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // costs more than it saves on a local socket
		connect.WithCodec(plainProto{}),
		connect.WithCodec(markingJSON{"json"}),
		connect.WithCodec(markingJSON{"json; charset=utf-8"}),
		connect.WithInterceptors(operationInterceptor{}),
		connect.WithRecover(recovered(d.Log)),
		connect.WithInterceptors(decodes{}),
	)
	commands := execs{d.Execs, newAmounts(littleAnswer)}
	services := map[string]any{
		caissonv1connect.SandboxServiceName:   sandboxes{d.Sandboxes, d.Workspaces},
		caissonv1connect.ExecServiceName:      commands,
		caissonv1connect.ImageServiceName:     imageService{d.Images},
		caissonv1connect.VolumeServiceName:    volumeService{d.Volumes},
		caissonv1connect.SnapshotServiceName:  snapshotService{d.Snapshots, d.Sandboxes},
		caissonv1connect.TemplateServiceName:  templateService{d.Templates},
		caissonv1connect.WorkspaceServiceName: workspaceService{d.Workspaces},
		caissonv1connect.SecretServiceName:    secretService{d.Secrets},
		caissonv1connect.SystemServiceName:    system{d.System},
		caissonv1connect.NetworkServiceName:   network{d.Network, d.Spending, d.Forwards},
		caissonv1connect.FileServiceName:      fileService{d.Files},
		caissonv1connect.EventServiceName:     eventService{d.Events},
	}
	mux := http.NewServeMux()
	mux.Handle(caissonv1connect.NewSandboxServiceHandler(sandboxes{d.Sandboxes, d.Workspaces}, options))
	mux.Handle(caissonv1connect.NewExecServiceHandler(commands, options))
	mux.Handle(caissonv1connect.NewImageServiceHandler(imageService{d.Images}, options))
	mux.Handle(caissonv1connect.NewVolumeServiceHandler(volumeService{d.Volumes}, options))
	mux.Handle(caissonv1connect.NewSnapshotServiceHandler(snapshotService{d.Snapshots, d.Sandboxes}, options))
	mux.Handle(caissonv1connect.NewTemplateServiceHandler(templateService{d.Templates}, options))
	mux.Handle(caissonv1connect.NewWorkspaceServiceHandler(workspaceService{d.Workspaces}, options))
	mux.Handle(caissonv1connect.NewSecretServiceHandler(secretService{d.Secrets}, options))
	mux.Handle(caissonv1connect.NewSystemServiceHandler(system{d.System}, options))
	mux.Handle(caissonv1connect.NewNetworkServiceHandler(network{d.Network, d.Spending, d.Forwards}, options))
	mux.Handle(caissonv1connect.NewFileServiceHandler(fileService{d.Files}, options))
	mux.Handle(caissonv1connect.NewEventServiceHandler(eventService{d.Events}, options))
	mux.Handle(grpchealth.NewHandler(&health{host: d.System, services: slices.Sorted(maps.Keys(services))}, options))
	plain := rest.New(rest.Options{Services: services, Streams: &streams, Unary: unaryCall(d.Log)})
	calls := byPath(plain, knownCalls(mux))
	bounded := boundCalls(slow.Bound(newIntake(d.ReadTimeout, d.WriteTimeout).serve(calls), d.WriteTimeout, plain.Procedure))
	return operations(bounded, d, plain)
}

// unaryCall does for a call of plain HTTP what the interceptors do for one of Connect.
func unaryCall(log *slog.Logger) func(context.Context, string, proto.Message, rest.Call) (proto.Message, error) {
	recovered := recoveredCall(log)
	return func(ctx context.Context, procedure string, request proto.Message, next rest.Call) (answer proto.Message, err error) {
		op := operationOf(ctx)
		op.asked(request)
		defer func() {
			if value := recover(); value != nil {
				err = op.failed(recovered(ctx, procedure, value))
			}
		}()
		if err := decodedBody(ctx); err != nil {
			return nil, op.failed(fail(err))
		}
		answer, err = next(ctx)
		if err != nil {
			return nil, op.failed(err)
		}
		op.answered(answer)
		return answer, nil
	}
}

// byPath serves the calls of Connect and gRPC with calls, and all other paths with plain,
// which refuses those that are no route.
func byPath(plain, calls http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/openapi.json" && r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(openapi.JSON) // a caller that has gone needs no answer
		case isCall(r):
			calls.ServeHTTP(w, r)
		default:
			plain.ServeHTTP(w, r)
		}
	})
}

// isCall says that r has the path of a call, /PACKAGE.SERVICE/METHOD, or comes by gRPC.
func isCall(r *http.Request) bool {
	service, _, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return found && strings.Contains(service, ".") || strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// recovered turns a panic of a handler into SBX-001 for its caller, and keeps
// the daemon alive for the others.
func recovered(log *slog.Logger) func(context.Context, connect.Spec, http.Header, any) error {
	call := recoveredCall(log)
	return func(ctx context.Context, spec connect.Spec, _ http.Header, value any) error {
		return call(ctx, spec.Procedure, value)
	}
}

func recoveredCall(log *slog.Logger) func(context.Context, string, any) error {
	return func(ctx context.Context, procedure string, value any) error {
		log.ErrorContext(ctx, "handler panicked", "procedure", procedure, "panic", value, "stack", string(debug.Stack()))
		return fail(sbxerr.Wrap(sbxerr.Internal, "server.recover", fmt.Errorf("%s panicked", procedure)))
	}
}
