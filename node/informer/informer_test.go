package informer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/caisson-run/caisson/node/informer"
)

// server has one pod, until it is restored from a state without it. It ends watches in time.
type server struct {
	pods    []corev1.Pod
	lists   int
	watches []*watch.FakeWatcher
	chosen  string
}

func (s *server) list(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	s.lists++
	s.chosen = o.LabelSelector
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: s.pods}, nil
}

func (s *server) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	s.watches = append(s.watches, w)
	time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, w.Stop)
	return w, nil
}

func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}}}}
		i := informer.New(fake.NewClientset(), &corev1.Pod{}, cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = "of=mine" }, s.list, s.watch)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go i.RunWithContext(ctx)
		if time.Sleep(time.Hour); s.lists != 1 || len(s.watches) < 5 {
			t.Errorf("%d watches that ended by themselves were resumed, after %d lists", len(s.watches), s.lists)
		}
		if keys := i.GetStore().ListKeys(); len(keys) != 1 || s.chosen != "of=mine" {
			t.Errorf("pods %q, chosen by %q", keys, s.chosen)
		}
		s.pods = nil
		s.watches[len(s.watches)-1].Stop()
		if time.Sleep(time.Minute); s.lists != 2 || len(i.GetStore().ListKeys()) != 0 {
			t.Errorf("after a watch that was cut off: %d lists, pods %q", s.lists, i.GetStore().ListKeys())
		}
		if time.Sleep(time.Hour); s.lists != 2 {
			t.Errorf("%d lists an hour later", s.lists)
		}
	})
}
