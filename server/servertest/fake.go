// Package servertest serves the API from a fake, for the tests of what speaks
// to a daemon.
package servertest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/secrets"
	"github.com/caisson-run/caisson/runtime/snapshots"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/templates"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/runtime/workspaces"
	"github.com/caisson-run/caisson/server"
)

// Fake is a daemon without a host. Its functions may be nil: then Run succeeds
// at once, lists are empty and what is asked by name does not exist.
type Fake struct {
	OnRun     func(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error)
	OnStart   func(ctx context.Context, req plan.Request) (runtime.Info, error)
	OnRemove  func(ref string, force bool) (string, error)
	OnCleanup func(dryRun bool) ([]runtime.Leftover, error)
	OnLogs    func(ctx context.Context, ref string, options runtime.LogOptions, stdout, stderr io.Writer) error
	OnSpec    func(req plan.Request) (*runtime.SpecView, error)
	OnImport  func(name string, r io.Reader, progress func(string)) (images.Imported, error)
	OnBuild   func(r imageservice.BuildRequest, report func(images.BuildEvent)) (images.Imported, error)
	OnHost    func(req images.FromHostRequest, progress func(string)) (images.Imported, error)
	OnPull    func(req images.PullRequest, progress func(images.PullProgress)) (images.Imported, error)
	OnDoctor  func() ([]runtime.Check, error)

	OnCreate          func(req plan.CreateRequest) (runtime.Info, error)
	OnUpdate          func(ref string, req runtime.UpdateRequest) (runtime.Info, error)
	OnAttachWorkspace func(ref string, w plan.WorkspaceRequest) (runtime.Info, error)
	OnPause           func(ref string) (runtime.Info, error)
	OnResume          func(ref string) (runtime.Info, error)
	OnRestart         func(ref string) (runtime.Info, error)
	Cleaned           runtime.Cleaned
	Spent             []spend.Row
	OnStop            func(ref string, grace *time.Duration) (runtime.Info, error)
	OnWait            func(ctx context.Context, ref string) (runtime.Info, error)
	OnExec            func(ctx context.Context, ref string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error)
	OnAttach          func(ctx context.Context, ref, exec string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error)
	OnStartEx         func(ref string, req plan.ExecRequest) (runtime.ExecInfo, error)
	OnExecs           func(ref string) ([]runtime.ExecInfo, error)
	OnWaitEx          func(ctx context.Context, ref, exec string) (runtime.ExecInfo, error)
	OnPolicy          func(q runtime.PolicyQuery) (runtime.PolicyView, error)
	OnCheck           func(q runtime.PolicyQuery, target string) (runtime.PolicyVerdict, error)
	OnTraffic         func(ref, since string, follow bool) ([]runtime.TrafficEntry, error)
	OnLearn           func(ref string) (*runtime.Learned, error)
	OnSignal          func(ref, exec string, req runtime.SignalRequest) error
	OnInput           func(ctx context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error)
	OnResize          func(ref, exec string, size plan.WinSize) error

	OnStats   func(sel runtime.StatsSelection, follow bool) ([]runtime.SandboxStats, error)
	OnHistory func(ref string) (*runtime.History, error)

	OnReady  func() error
	Left     chan struct{} // closed when the daemon leaves; nil never
	OnEvents func(since events.Since, filter events.Filter, follow bool) ([]*events.Event, error)

	Infos        []runtime.Info
	Gone         []runtime.Info
	Details      map[string]*runtime.Detail
	Images       []images.Image
	ImageDetails map[string]*images.Detail
	Volumes      []volumes.Info
	Secrets      []secrets.Secret
	Snapshots    []snapshots.Info
	Templates    []templates.Info
	Changes      []changes.Change
	Changesets   []workspaces.Changeset
	ApplyResult  workspaces.Result
	OfChanges    patches.Patch
	PatchControl []bool               // of the patches that were asked for
	Applied      []workspaces.Request // what was asked for
	Version      runtime.Versions
	Supports     []runtime.Capability
	Counts       runtime.HostInfo
	Reloaded     runtime.Reloaded
}

// Listen serves f on a new unix socket until t ends.
func Listen(t testing.TB, f *Fake) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "api.sock")
	ListenAt(t, f, socket)
	return socket
}

// ListenAt is Listen on a given socket.
func ListenAt(t testing.TB, f *Fake, socket string) {
	t.Helper()
	t.Cleanup(Start(t, f, socket))
}

// grace is what calls under way get at the end: clients keep idle connections.
const grace = 50 * time.Millisecond

// Start serves f on socket until the returned function, which may be called
// more than once, breaks off all calls, as the end of a daemon does.
func Start(t testing.TB, f *Fake, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	deps := server.Deps{Sandboxes: f, Execs: f, Images: imageFake{f}, Volumes: volumeFake{f}, Snapshots: snapshotFake{f}, Templates: templateFake{f}, Workspaces: workspaceFake{f}, System: f, Network: f, Spending: spendingFake{f}, Secrets: secretFake{f}, Events: f}
	go func() { ended <- server.Serve(ctx, l, server.New(deps), grace) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

// Run implements server.Sandboxes.
func (f *Fake) Run(ctx context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
	if f.OnRun == nil {
		return &runtime.Result{Source: "command", Reason: runtime.ReasonExited}, nil
	}
	return f.OnRun(ctx, req, rio)
}

// Start implements server.Sandboxes.
func (f *Fake) Start(ctx context.Context, req plan.Request) (runtime.Info, error) {
	if f.OnStart == nil {
		return runtime.Info{}, absent("started", "")
	}
	return f.OnStart(ctx, req)
}

// List implements server.Sandboxes.
func (f *Fake) List(context.Context) ([]runtime.Info, error) { return f.Infos, nil }

// Past implements server.Sandboxes.
func (f *Fake) Past(context.Context) ([]runtime.Info, error) { return f.Gone, nil }

// Inspect implements server.Sandboxes.
func (f *Fake) Inspect(_ context.Context, ref string) (*runtime.Detail, error) {
	if d, ok := f.Details[ref]; ok {
		return d, nil
	}
	return nil, absent("sandbox", ref)
}

// Remove implements server.Sandboxes.
func (f *Fake) Remove(_ context.Context, ref string, force bool) (string, error) {
	if f.OnRemove == nil {
		return "", absent("sandbox", ref)
	}
	return f.OnRemove(ref, force)
}

// Stats implements server.Sandboxes. With follow it tells everything twice.
func (f *Fake) Stats(_ context.Context, sel runtime.StatsSelection, follow bool, yield func(time.Time, []runtime.SandboxStats) error) error {
	if f.OnStats == nil {
		return yield(time.Unix(0, 0), nil)
	}
	list, err := f.OnStats(sel, follow)
	if err != nil {
		return err
	}
	if follow {
		if err := yield(time.Unix(1, 0), list); err != nil {
			return err
		}
	}
	return yield(time.Unix(2, 0), list)
}

// History implements server.Sandboxes.
func (f *Fake) History(_ context.Context, ref string) (*runtime.History, error) {
	if f.OnHistory == nil {
		return nil, absent("sandbox", ref)
	}
	return f.OnHistory(ref)
}

// Cleanup implements server.Sandboxes.
func (f *Fake) Cleanup(_ context.Context, dryRun bool) ([]runtime.Leftover, error) {
	if f.OnCleanup == nil {
		return nil, nil
	}
	return f.OnCleanup(dryRun)
}

// Logs implements server.Sandboxes.
func (f *Fake) Logs(ctx context.Context, ref string, options runtime.LogOptions, stdout, stderr io.Writer) error {
	if f.OnLogs == nil {
		return absent("sandbox", ref)
	}
	return f.OnLogs(ctx, ref, options, stdout, stderr)
}

// Spec implements server.Sandboxes.
func (f *Fake) Spec(_ context.Context, req plan.Request) (*runtime.SpecView, error) {
	if f.OnSpec == nil {
		return &runtime.SpecView{SpecJSON: []byte("{}")}, nil
	}
	return f.OnSpec(req)
}

// PseudoFilter implements server.Sandboxes.
func (f *Fake) PseudoFilter(context.Context, plan.Request) (string, error) {
	return "#\n# pseudo filter code start\n#\n", nil
}

// ExplainPolicy implements server.Network.
func (f *Fake) ExplainPolicy(_ context.Context, q runtime.PolicyQuery) (runtime.PolicyView, error) {
	if f.OnPolicy == nil {
		return runtime.PolicyView{}, absent("sandbox", q.Ref)
	}
	return f.OnPolicy(q)
}

// CheckPolicy implements server.Network.
func (f *Fake) CheckPolicy(_ context.Context, q runtime.PolicyQuery, target string, _ []netip.Addr) (runtime.PolicyVerdict, error) {
	if f.OnCheck == nil {
		return runtime.PolicyVerdict{}, absent("sandbox", q.Ref)
	}
	return f.OnCheck(q, target)
}

// LearnPolicy implements server.Network.
func (f *Fake) LearnPolicy(_ context.Context, ref string) (*runtime.Learned, error) {
	if f.OnLearn == nil {
		return nil, absent("sandbox", ref)
	}
	return f.OnLearn(ref)
}

// Traffic implements server.Network.
func (f *Fake) Traffic(_ context.Context, ref, since string, follow bool, yield func(runtime.TrafficEntry) error) error {
	if f.OnTraffic == nil {
		return absent("sandbox", ref)
	}
	entries, err := f.OnTraffic(ref, since, follow)
	for _, e := range entries {
		if err := yield(e); err != nil {
			return err
		}
	}
	return err
}

// Events implements server.Events.
func (f *Fake) Events(_ context.Context, since events.Since, filter events.Filter, follow bool, yield func(*events.Event) error) error {
	if f.OnEvents == nil {
		return nil
	}
	list, err := f.OnEvents(since, filter, follow)
	for _, e := range list {
		if err := yield(e); err != nil {
			return err
		}
	}
	return err
}

// Versions implements server.System.
func (f *Fake) Versions(context.Context) (runtime.Versions, error) { return f.Version, nil }

// Ready implements server.System.
func (f *Fake) Ready(context.Context) error {
	if f.OnReady == nil {
		return nil
	}
	return f.OnReady()
}

// Leaving implements server.System.
func (f *Fake) Leaving() <-chan struct{} { return f.Left }

// Doctor implements server.System.
func (f *Fake) Doctor(context.Context) ([]runtime.Check, error) {
	if f.OnDoctor == nil {
		return nil, nil
	}
	return f.OnDoctor()
}

// ReloadConfig implements server.System.
func (f *Fake) ReloadConfig(context.Context) (runtime.Reloaded, error) { return f.Reloaded, nil }

// HostInfo implements server.System.
func (f *Fake) HostInfo(context.Context) (runtime.HostInfo, error) { return f.Counts, nil }

// Capabilities implements server.System.
func (f *Fake) Capabilities(context.Context) ([]runtime.Capability, error) { return f.Supports, nil }

// imageFake implements server.Images.
type imageFake struct{ *Fake }

func (f imageFake) List(context.Context) ([]images.Image, error) { return f.Fake.Images, nil }

func (f imageFake) Inspect(_ context.Context, name string) (*images.Detail, error) {
	if d, ok := f.ImageDetails[name]; ok {
		return d, nil
	}
	return nil, absentImage(name)
}

func (f imageFake) Remove(_ context.Context, name string) error {
	if _, ok := f.ImageDetails[name]; !ok {
		return absentImage(name)
	}
	return nil
}

func (f imageFake) Import(_ context.Context, name string, r io.Reader, progress func(string)) (images.Imported, error) {
	return f.OnImport(name, r, progress)
}

func (f imageFake) FromHost(_ context.Context, req images.FromHostRequest, progress func(string)) (images.Imported, error) {
	return f.OnHost(req, progress)
}

func (f imageFake) Pull(_ context.Context, req images.PullRequest, progress func(images.PullProgress)) (images.Imported, error) {
	return f.OnPull(req, progress)
}

func (f imageFake) PullAll(_ context.Context, progress func(images.PullProgress), each func(images.Imported)) error {
	done, err := f.OnPull(images.PullRequest{}, progress)
	if err == nil {
		each(done)
	}
	return err
}

func (f imageFake) Build(_ context.Context, r imageservice.BuildRequest, report func(images.BuildEvent)) (images.Imported, error) {
	return f.OnBuild(r, report)
}

func (f imageFake) BuildNeeds(context.Context, imageservice.BuildRequest) (images.BuildNeeds, error) {
	return images.BuildNeeds{Images: []string{"base"}}, nil
}

func (f imageFake) Tag(_ context.Context, name, newName string) (images.Imported, error) {
	d, ok := f.ImageDetails[name]
	if !ok {
		return images.Imported{}, absentImage(name)
	}
	tagged := d.Image
	tagged.Name = newName
	return images.Imported{Image: tagged}, nil
}

func (f imageFake) Save(_ context.Context, names []string, w io.Writer) error {
	for _, name := range names {
		if _, ok := f.ImageDetails[name]; !ok {
			return absentImage(name)
		}
		if _, err := io.WriteString(w, "archive of "+name); err != nil {
			return err
		}
	}
	return nil
}

func (f imageFake) Prune(context.Context, images.PruneRequest) (images.Pruned, error) {
	return images.Pruned{Images: f.Fake.Images}, nil
}

func (f imageFake) Usage(context.Context) (list []images.DiskUsage, stored int64, err error) {
	for _, i := range f.Fake.Images {
		list = append(list, images.DiskUsage{Image: i, UnpackedBytes: i.SizeBytes})
		stored += i.SizeBytes
	}
	return list, stored, nil
}

func absent(kind, ref string) error {
	return sbxerr.New(sbxerr.NotFound, "fake.find", "no %s %q", kind, ref)
}

func absentImage(name string) error {
	return sbxerr.New(sbxerr.ImageNotFound, "fake.find", "no image %q; there are: base", name)
}
