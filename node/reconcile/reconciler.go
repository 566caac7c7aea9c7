// Package reconcile makes sandboxes follow the pods that are bound to a node. The API server
// says what should be, the daemon's sandboxes with their labels are what is, and nothing else is
// kept: both the program and the daemon may be killed at any time.
package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/informer"
	"github.com/caisson-run/caisson/node/pod"
)

// Caisson is what is called of the daemon.
type Caisson interface {
	List(context.Context, *caissonv1.ListRequest) (*caissonv1.ListResponse, error)
	RunDetached(context.Context, *caissonv1.RunSpec) (*caissonv1.Started, error)
	Update(context.Context, *caissonv1.UpdateRequest) (*caissonv1.Sandbox, error)
	Stop(ctx context.Context, ref string, grace *time.Duration) (*caissonv1.Sandbox, error)
	Wait(ctx context.Context, ref string) (*caissonv1.Sandbox, error)
	Remove(context.Context, *caissonv1.RemoveRequest) (*caissonv1.RemoveResponse, error)
	InspectImage(context.Context, *caissonv1.InspectImageRequest) (*caissonv1.InspectImageResponse, error)
	PullImage(context.Context, *caissonv1.PullImageRequest, func(*caissonv1.ImageProgress)) (*caissonv1.ImageProgress, error)
	CreateVolume(context.Context, *caissonv1.CreateVolumeRequest) (*caissonv1.Volume, error)
	ListVolumes(context.Context, *caissonv1.ListVolumesRequest) (*caissonv1.ListVolumesResponse, error)
	InspectVolume(context.Context, *caissonv1.InspectVolumeRequest) (*caissonv1.Volume, error)
	RemoveVolume(context.Context, *caissonv1.RemoveVolumeRequest) (*caissonv1.RemoveVolumeResponse, error)
	Watch(context.Context, *caissonv1.WatchRequest, func(*caissonv1.Event) error) error
	Probe(ctx context.Context, ref string, probe *corev1.Probe) (healthy bool, why string, err error)
}

// Addresses gives pods addresses of the host. Take returns the same one for the same pod, and Of
// the one that it has.
type Addresses interface {
	Of(types.UID) string
	Take(uid types.UID) (string, error)
	Restore(uid types.UID, address string) error
	Release(uid types.UID) error
}

// Config is what a Reconciler needs.
type Config struct {
	Node, HostIP string
	Client       kubernetes.Interface
	Caisson      Caisson
	Addresses    Addresses // nil: pods have none
	Events       record.EventRecorder
	Offer        pod.Offer
	Files        string // directory for the files of pods
	Runtimes     *agentsandbox.Set
	Allocatable  func() corev1.ResourceList
	Memory       int64 // of a container that asks for none, counted against the node
	Workers      int
	Resync       time.Duration
	Refresh      time.Duration // between two looks at ConfigMaps, Secrets and tokens of pods that run
	Log          *slog.Logger
	// IgnorePolicies lets anybody connect to pods, whatever NetworkPolicies say.
	IgnorePolicies bool
}

// Reconciler follows the pods of one node.
type Reconciler struct {
	Config
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[types.UID]
	policies *policies // nil: anybody may connect, or pods have no address

	writing sync.Mutex // of files of pods

	mu         sync.Mutex
	notes      map[types.UID]note    // why a container does not run yet
	failures   map[types.UID]failure // starts in a row that failed
	admitted   map[types.UID]bool    // pods that are counted against the node
	deleted    map[types.UID]bool    // pods of which the API server told the end
	stopping   map[string]time.Time  // sandboxes that are being stopped, until when
	probes     map[string]*prober    // by sandbox
	prestopped map[string]bool       // sandboxes of which the preStop hook was begun
	pulls      map[pullKey]*pulling
	tokens     map[tokenKey]token
	problems   map[types.UID]problem                  // with NetworkPolicies, that were told last
	lastTold   map[types.UID][]corev1.ContainerStatus // of containers, while the informer may show older ones
}

const byUID = "uid"

// New returns a Reconciler that does nothing until Run.
func New(c Config) *Reconciler {
	r := &Reconciler{
		Config: c,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](200*time.Millisecond, 20*time.Second)),
		notes: map[types.UID]note{}, failures: map[types.UID]failure{}, admitted: map[types.UID]bool{}, deleted: map[types.UID]bool{},
		stopping: map[string]time.Time{}, probes: map[string]*prober{},
		pulls: map[pullKey]*pulling{}, prestopped: map[string]bool{},
		tokens: map[tokenKey]token{}, problems: map[types.UID]problem{}, lastTold: map[types.UID][]corev1.ContainerStatus{},
	}
	if c.Addresses != nil && !c.IgnorePolicies {
		r.policies = newPolicies(c)
	}
	pods := r.Client.CoreV1().Pods(metav1.NamespaceAll)
	r.informer = informer.New(r.Client, &corev1.Pod{}, cache.Indexers{
		byUID:                func(o any) ([]string, error) { return []string{string(o.(*corev1.Pod).UID)}, nil },
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", r.Node).String()
	}, pods.List, pods.Watch)
	return r
}

// Run follows pods until ctx ends. Sandboxes are left as they are then.
func (r *Reconciler) Run(ctx context.Context) error {
	defer r.queue.ShutDown()
	_, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.enqueue(o) },
		UpdateFunc: func(_, o any) { r.enqueue(o) },
		DeleteFunc: func(o any) {
			r.noteDeleted(o)
			r.enqueue(o)
		},
	})
	if err != nil {
		return err
	}
	if err := r.adopt(ctx); err != nil {
		return err
	}
	go r.informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return ctx.Err()
	}
	var running sync.WaitGroup
	for range max(r.Workers, 1) {
		running.Go(func() { r.work(ctx) })
	}
	running.Go(func() { r.watch(ctx) })
	running.Go(func() { r.resync(ctx) })
	running.Go(func() { r.refresh(ctx) })
	if r.policies != nil {
		running.Go(func() { r.followPolicies(ctx) })
	}
	<-ctx.Done()
	r.queue.ShutDown()
	running.Wait()
	return nil
}

// Synced says that the pods of the API server are known.
func (r *Reconciler) Synced() bool { return r.informer.HasSynced() }

func (r *Reconciler) enqueue(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if p, ok := o.(*corev1.Pod); ok {
		r.queue.Add(p.UID)
	}
}

// noteDeleted keeps that a pod is gone where an event says so. One that a new list does not have
// is asked for.
func (r *Reconciler) noteDeleted(o any) {
	if p, ok := o.(*corev1.Pod); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deleted[p.UID] = true
	}
}

func (r *Reconciler) work(ctx context.Context) {
	for {
		uid, stop := r.queue.Get()
		if stop {
			return
		}
		again, err := r.sync(ctx, uid)
		switch {
		case err != nil:
			r.Log.Warn("pod", "uid", uid, "error", err)
			r.queue.AddRateLimited(uid)
		default:
			r.queue.Forget(uid)
			if again > 0 {
				r.queue.AddAfter(uid, again)
			}
		}
		r.queue.Done(uid)
	}
}

// Pods returns the pods of the node.
func (r *Reconciler) Pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range r.informer.GetStore().List() {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

func (r *Reconciler) pod(uid types.UID) *corev1.Pod {
	found, err := r.informer.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(found) == 0 {
		return nil
	}
	return found[0].(*corev1.Pod).DeepCopy()
}
