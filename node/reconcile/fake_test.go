package reconcile

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/pod"
)

// daemon is a caisson in memory. A sandbox ends when the test or Stop says so.
type daemon struct {
	mu      sync.Mutex
	boxes   map[string]*caissonv1.Sandbox
	specs   []*caissonv1.SandboxSpec
	volumes map[string]bool
	graces  []time.Duration
	events  chan *caissonv1.Event
	runErr  error
	updates [][]string    // of what sandboxes publish
	lose    bool          // an update fails
	slow    chan struct{} // Stop waits for it, if there is one
	probed  func(context.Context, string, *corev1.Probe) (bool, string, error)
}

func newDaemon() *daemon {
	return &daemon{boxes: map[string]*caissonv1.Sandbox{}, volumes: map[string]bool{}, events: make(chan *caissonv1.Event, 100)}
}

func (d *daemon) List(_ context.Context, req *caissonv1.ListRequest) (*caissonv1.ListResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &caissonv1.ListResponse{}
	for _, name := range slices.Sorted(maps.Keys(d.boxes)) {
		b := d.boxes[name]
		matches := true
		for k, v := range req.Labels {
			matches = matches && b.Labels[k] == v
		}
		if matches {
			l.Sandboxes = append(l.Sandboxes, proto.CloneOf(b))
		}
	}
	return l, nil
}

func (d *daemon) RunDetached(_ context.Context, r *caissonv1.RunSpec) (*caissonv1.Started, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runErr != nil {
		return nil, d.runErr
	}
	s := r.Sandbox
	if d.boxes[s.Name] != nil {
		return nil, sbxerr.New(sbxerr.Exists, "fake", "%s is taken", s.Name)
	}
	d.specs = append(d.specs, s)
	d.boxes[s.Name] = &caissonv1.Sandbox{
		Id: "id-" + s.Name, Name: s.Name, State: "running", Labels: s.Labels, Mounts: s.Mounts, CreatedAt: timestamppb.Now(), Ports: portsOf(s.Publish),
	}
	return &caissonv1.Started{}, nil
}

// portsOf reads what a sandbox publishes.
func portsOf(publish []string) (ports []*caissonv1.Port) {
	for _, text := range publish {
		text, clients, bound := strings.Cut(text, "@")
		at := strings.LastIndexByte(text, ':')
		listener := netip.MustParseAddrPort(text[:at])
		inside, _ := strconv.Atoi(text[at+1:])
		p := &caissonv1.Port{Address: listener.Addr().String(), HostPort: uint32(listener.Port()), Port: uint32(inside)}
		if bound {
			p.Clients = strings.Split(clients, "+")
		}
		ports = append(ports, p)
	}
	return ports
}

func (d *daemon) Update(_ context.Context, r *caissonv1.UpdateRequest) (*caissonv1.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.box(r.Ref)
	if b == nil || d.lose {
		return nil, sbxerr.New(sbxerr.NotFound, "fake", "no %s", r.Ref)
	}
	d.updates = append(d.updates, r.Publish.Rules)
	b.Ports = portsOf(r.Publish.Rules)
	return b, nil
}

func (d *daemon) box(ref string) *caissonv1.Sandbox {
	for _, b := range d.boxes {
		if b.Id == ref || b.Name == ref {
			return b
		}
	}
	return nil
}

// finish ends a sandbox as its command does.
func (d *daemon) finish(ref string, code int32) {
	d.mu.Lock()
	b := d.box(ref)
	b.State, b.ExitedAt = "exited", timestamppb.Now()
	b.Result = &caissonv1.Result{ExitCode: code, Source: "command", Reason: "exited"}
	name, id := b.Name, b.Id
	d.mu.Unlock()
	d.events <- &caissonv1.Event{Type: "run.caisson.sandbox.ended", Data: &caissonv1.EventData{Name: name, SandboxId: id}}
}

func (d *daemon) Stop(_ context.Context, ref string, grace *time.Duration) (*caissonv1.Sandbox, error) {
	d.mu.Lock()
	b := d.box(ref)
	d.graces = append(d.graces, *grace)
	d.mu.Unlock()
	if d.slow != nil {
		<-d.slow
	}
	if b == nil {
		return nil, sbxerr.New(sbxerr.NotFound, "fake", "no %s", ref)
	}
	d.finish(ref, 143)
	return b, nil
}

func (d *daemon) Wait(context.Context, string) (*caissonv1.Sandbox, error) {
	return &caissonv1.Sandbox{}, nil
}

func (d *daemon) Remove(_ context.Context, r *caissonv1.RemoveRequest) (*caissonv1.RemoveResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.box(r.Ref)
	if b == nil {
		return nil, sbxerr.New(sbxerr.NotFound, "fake", "no %s", r.Ref)
	}
	delete(d.boxes, b.Name)
	return &caissonv1.RemoveResponse{}, nil
}

func (d *daemon) InspectImage(context.Context, *caissonv1.InspectImageRequest) (*caissonv1.InspectImageResponse, error) {
	return &caissonv1.InspectImageResponse{ConfigJson: []byte(`{"config":{"Cmd":["serve"]}}`)}, nil
}

func (d *daemon) PullImage(context.Context, *caissonv1.PullImageRequest, func(*caissonv1.ImageProgress)) (*caissonv1.ImageProgress, error) {
	return &caissonv1.ImageProgress{}, nil
}

func (d *daemon) CreateVolume(_ context.Context, r *caissonv1.CreateVolumeRequest) (*caissonv1.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[r.Name] = true
	return &caissonv1.Volume{}, nil
}

func (d *daemon) ListVolumes(context.Context, *caissonv1.ListVolumesRequest) (*caissonv1.ListVolumesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &caissonv1.ListVolumesResponse{}
	for name := range d.volumes {
		l.Volumes = append(l.Volumes, &caissonv1.Volume{Name: name})
	}
	return l, nil
}

func (d *daemon) InspectVolume(_ context.Context, r *caissonv1.InspectVolumeRequest) (*caissonv1.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.volumes[r.Name] {
		return nil, sbxerr.New(sbxerr.VolumeNotFound, "fake", "no %s", r.Name)
	}
	return &caissonv1.Volume{Name: r.Name}, nil
}

func (d *daemon) RemoveVolume(_ context.Context, r *caissonv1.RemoveVolumeRequest) (*caissonv1.RemoveVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.volumes, r.Name)
	return &caissonv1.RemoveVolumeResponse{}, nil
}

func (d *daemon) Watch(ctx context.Context, _ *caissonv1.WatchRequest, yield func(*caissonv1.Event) error) error {
	for {
		select {
		case e := <-d.events:
			if err := yield(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) Probe(ctx context.Context, ref string, p *corev1.Probe) (bool, string, error) {
	d.mu.Lock()
	asked := d.probed
	d.mu.Unlock()
	if asked == nil {
		return true, "", nil
	}
	return asked(ctx, ref, p)
}

// inside is what runtimes call.
type inside struct{ agentsandbox.Caisson }

func (inside) Exec(_ context.Context, ref string, spec *caissonv1.ExecSpec, rio api.IO) (*caissonv1.Result, error) {
	_, err := fmt.Fprintf(rio.Stdout, "%s %s %s", ref, spec.Workdir, spec.Args)
	return &caissonv1.Result{}, err
}

// names are the sandboxes that there are.
func (d *daemon) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.boxes))
}

// addresses count up.
type addresses struct {
	mu sync.Mutex
	of map[types.UID]string
}

func (a *addresses) Of(uid types.UID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[uid]
}

func (a *addresses) Take(uid types.UID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[uid] == "" {
		a.of[uid] = fmt.Sprintf("10.0.0.%d", len(a.of)+1)
	}
	return a.of[uid], nil
}

func (a *addresses) Restore(uid types.UID, address string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[uid] = address
	return nil
}

func (a *addresses) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, uid)
	return nil
}

const uid1 = "11111111-1111-1111-1111-111111111111"

// box1 is the first sandbox of the pod of newPod.
const box1 = uid1 + "-0-0"

func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: uid1},
		Spec: corev1.PodSpec{NodeName: "n", RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "c", Image: "base", Command: []string{"true"},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

type world struct {
	*daemon
	client *fake.Clientset
	ips    *addresses
	config Config
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{daemon: newDaemon(), client: fake.NewClientset(objects...), ips: &addresses{of: map[types.UID]string{}}}
	w.selectNode()
	w.config = Config{
		Node: "n", HostIP: "192.0.2.1", Client: w.client, Caisson: w.daemon, Addresses: w.ips,
		Events: record.NewFakeRecorder(1000), Runtimes: agentsandbox.New(inside{}), Files: t.TempDir(), Memory: 512 << 20, Workers: 4,
		Resync: 50 * time.Millisecond, Refresh: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Allocatable: func() corev1.ResourceList {
			return corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
			}
		},
	}
	t.Cleanup(func() { w.config.Runtimes.Close() }) // after the program
	return w
}

// selectNode lets the fake know spec.nodeName as a field of pods, as the API server does.
func (w *world) selectNode() {
	own := func(fields string, o runtime.Object) bool {
		p, ok := o.(*corev1.Pod)
		return fields == "" || !ok || fields == "spec.nodeName="+p.Spec.NodeName
	}
	w.client.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		l := a.(k8stesting.ListActionImpl)
		o, err := w.client.Tracker().List(a.GetResource(), l.GetKind(), a.GetNamespace())
		if pods, ok := o.(*corev1.PodList); ok {
			fields := l.GetListRestrictions().Fields.String()
			pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !own(fields, &p) })
		}
		return true, o, err
	})
	w.client.PrependWatchReactor("pods", func(a k8stesting.Action) (bool, watch.Interface, error) {
		all, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		fields := a.(k8stesting.WatchAction).GetWatchRestrictions().Fields.String()
		return true, watch.Filter(all, func(e watch.Event) (watch.Event, bool) { return e, own(fields, e.Object) }), nil
	})
}

// run runs a node program, until stop is called or the test ends.
func (w *world) run(t *testing.T) (r *Reconciler, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r = New(w.config)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return r, stop
}

func (w *world) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	p, err := w.client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		return &corev1.Pod{}
	}
	return p
}

func (w *world) phase(t *testing.T, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	eventually(t, fmt.Sprintf("the phase %q", want), func() bool { return w.pod(t).Status.Phase == want })
	return w.pod(t)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 500 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func boxOf(uid, ip string) *caissonv1.Sandbox {
	name := uid + "-0-0"
	return &caissonv1.Sandbox{Id: "id-" + name, Name: name, State: "running", CreatedAt: timestamppb.Now(), Labels: map[string]string{
		pod.LabelNode: "n", pod.LabelUID: uid, pod.LabelNamespace: "ns", pod.LabelPod: "p", pod.LabelContainer: "c", pod.LabelIP: ip,
	}}
}
