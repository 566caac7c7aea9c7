package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/caisson-run/caisson/node/informer"
)

// patience is how long the API server has for its first answer. Pods wait for it.
const patience = 30 * time.Second

// feed follows all objects of one kind, which the node may have no right to read.
type feed[T runtime.Object] struct {
	cache.SharedIndexInformer
	resource string
	log      *slog.Logger
	changed  func() // called when objects changed, or whether they can be read
	begun    sync.Once
	settle   func()
	settled  chan struct{} // closed by settle: they were read or refused, or patience is over

	mu      sync.Mutex
	refused error // the node lacks the right
}

// newFeed returns a feed that reads nothing yet. An object that was updated counts as changed where
// matters, which may be nil, says so.
func newFeed[T, L runtime.Object](c Config, resource string, of T, changed func(), matters func(old, now T) bool,
	list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error)) *feed[T] {
	f := &feed[T]{resource: resource, log: c.Log, changed: changed, settled: make(chan struct{})}
	f.settle = sync.OnceFunc(func() { close(f.settled) })
	f.SharedIndexInformer = informer.New(c.Client, of, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(*metav1.ListOptions) {},
		func(ctx context.Context, o metav1.ListOptions) (L, error) {
			l, err := list(ctx, o)
			f.note(err)
			return l, err
		}, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := follow(ctx, o)
			f.note(err)
			return w, err
		})
	// Neither fails before the informer runs.
	_ = f.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) { // which note tells
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
	_, _ = f.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(old, now any) {
			if matters == nil || matters(old.(T), now.(T)) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	return f
}

// note keeps whether the node has the right. While the API server is away, what it told last counts.
func (f *feed[T]) note(err error) {
	forbidden := apierrors.IsForbidden(err)
	if err != nil && !forbidden {
		return
	}
	f.mu.Lock()
	flips := forbidden != (f.refused != nil)
	if flips { // so that its text stays
		f.refused = err
	}
	f.mu.Unlock()
	if !flips {
		return
	}
	if forbidden {
		f.log.Warn("the node has no right to read", "resource", f.resource, "error", err)
		f.settle()
	}
	f.changed()
}

// begin reads the objects until ctx ends.
func (f *feed[T]) begin(ctx context.Context) {
	f.begun.Do(func() {
		go f.RunWithContext(ctx)
		go func() {
			if cache.WaitForCacheSync(ctx.Done(), f.HasSynced) {
				f.settle()
				f.changed()
			}
		}()
		time.AfterFunc(patience, f.settle)
	})
}

// read returns the objects of a namespace, or why they cannot be read. An empty one is all.
func (f *feed[T]) read(ctx context.Context, namespace string) (all []T, err error) {
	f.begin(ctx)
	select {
	case <-f.settled:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	refused := f.refused
	f.mu.Unlock()
	switch {
	case refused != nil:
		return nil, refused
	case !f.HasSynced():
		return nil, fmt.Errorf("the API server has not told the %s yet", f.resource)
	}
	err = cache.ListAllByNamespace(f.GetIndexer(), namespace, labels.Everything(), func(o any) { all = append(all, o.(T)) })
	return all, err
}
