// Package informer makes informers that also follow an API server whose etcd was restored.
package informer

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// New returns an informer of the objects that list and follow read. Choose sets the selectors of
// each call.
//
// A watch that was cut off is not resumed, all is read anew. Where an etcd was restored from an
// older state meanwhile, a resumed one would tell nothing until the revisions reach those of before,
// and never what went with the newer state.
func New[L runtime.Object](client kubernetes.Interface, of runtime.Object, by cache.Indexers, choose func(*metav1.ListOptions),
	list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.SharedIndexInformer {
	var whole time.Time // when the last watch ends by itself; zero where all was read after it
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			whole = time.Time{}
			choose(&o)
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			begin := time.Now()
			if o.SendInitialEvents == nil && begin.Before(whole) { // with them it reads all
				return nil, apierrors.NewResourceExpired("the last watch was cut off")
			}
			if o.TimeoutSeconds != nil {
				whole = begin.Add(time.Duration(*o.TimeoutSeconds) * time.Second)
			}
			choose(&o)
			return follow(ctx, o)
		},
	}, client), of, 0, by)
}
