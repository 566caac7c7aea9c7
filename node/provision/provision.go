// Package provision makes volumes of caisson for claims, and removes them when their claims are
// gone. All that it knows is in the claims, their PersistentVolumes and the daemon.
package provision

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/informer"
)

// Caisson is what is asked of the daemon.
type Caisson interface {
	CreateVolume(context.Context, *caissonv1.CreateVolumeRequest) (*caissonv1.Volume, error)
	RemoveVolume(context.Context, *caissonv1.RemoveVolumeRequest) (*caissonv1.RemoveVolumeResponse, error)
}

// Config is what a Provisioner needs.
type Config struct {
	Node    string
	Client  kubernetes.Interface
	Caisson Caisson
	Events  record.EventRecorder
	Log     *slog.Logger
}

// Provisioner makes and removes the volumes of one node.
type Provisioner struct {
	Config
	claims, volumes cache.SharedIndexInformer
	queue           workqueue.TypedRateLimitingInterface[task]
	refused         sync.Once
}

// task is a claim or a PersistentVolume that changed.
type task struct {
	claim bool
	key   string // in the informer
}

const (
	workers   = 4
	labelNode = "caisson.run/node" // of PersistentVolumes: their node
	role      = "caisson-volumes"
)

// New returns a Provisioner that does nothing until Run.
func New(c Config) *Provisioner {
	claims, volumes := c.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll), c.Client.CoreV1().PersistentVolumes()
	return &Provisioner{
		Config:  c,
		claims:  informer.New(c.Client, &corev1.PersistentVolumeClaim{}, cache.Indexers{}, func(*metav1.ListOptions) {}, claims.List, claims.Watch),
		volumes: informer.New(c.Client, &corev1.PersistentVolume{}, cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = labelNode + "=" + c.Node }, volumes.List, volumes.Watch),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](time.Second, time.Minute)),
	}
}

// Run provisions until ctx ends. While the node may not do that, it waits.
func (p *Provisioner) Run(ctx context.Context) error {
	defer p.queue.ShutDown()
	for _, i := range []cache.SharedIndexInformer{p.claims, p.volumes} {
		if err := i.SetWatchErrorHandlerWithContext(p.failed); err != nil {
			return err
		}
		if _, err := i.AddEventHandler(p.handler(i == p.claims)); err != nil {
			return err
		}
		go i.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), p.claims.HasSynced, p.volumes.HasSynced) {
		return ctx.Err()
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { p.work(ctx) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	running.Wait()
	return nil
}

// failed tells once that the node lacks the rights: a cluster may want no claims.
func (p *Provisioner) failed(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	p.refused.Do(func() {
		p.Log.Warn("claims of volumes are not served: the ClusterRole is not bound to the node", "role", role, "error", err)
		node := &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: p.Node}
		p.Events.Eventf(node, corev1.EventTypeWarning, "ProvisioningForbidden",
			"claims of volumes are not served: bind the ClusterRole %s to the user system:node:%s", role, p.Node)
	})
}

func (p *Provisioner) handler(claim bool) cache.ResourceEventHandler {
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			p.queue.Add(task{claim, key})
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}
}

func (p *Provisioner) work(ctx context.Context) {
	for {
		t, stop := p.queue.Get()
		if stop {
			return
		}
		if err := p.sync(ctx, t); err != nil {
			p.Log.Warn("volume", "of", t.key, "error", err)
			p.queue.AddRateLimited(t)
		} else {
			p.queue.Forget(t)
		}
		p.queue.Done(t)
	}
}

func (p *Provisioner) sync(ctx context.Context, t task) error {
	informer := p.volumes
	if t.claim {
		informer = p.claims
	}
	o, there, err := informer.GetStore().GetByKey(t.key)
	if err != nil || !there {
		return err
	}
	if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
		return p.provision(ctx, claim)
	}
	return p.reclaim(ctx, o.(*corev1.PersistentVolume))
}
