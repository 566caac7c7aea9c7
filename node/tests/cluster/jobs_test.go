package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// number is a size that a variable may change: 500 pods take a while.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// figures are printed as one line of JSON.
func figures(t *testing.T, values map[string]any) {
	t.Helper()
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("figures: %s\n", text)
}

// template is a small pod of one container.
func template(script string) corev1.PodSpec {
	small := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi"), corev1.ResourceCPU: resource.MustParse("1m")}
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "c", Image: "base", Command: []string{"sh", "-c", script}, Resources: corev1.ResourceRequirements{Requests: small},
	}}}
}

func TestJob(t *testing.T) {
	completions := int32(number(t, "CAISSON_TEST_JOB", 100))
	parallel := completions / 10
	if completions == 100 {
		parallel = 20
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: batchv1.JobSpec{
		Completions: &completions, Parallelism: &parallel, Template: corev1.PodTemplateSpec{Spec: template("echo $HOSTNAME")},
	}}
	begin := time.Now()
	if _, err := site.client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kubectl(t, "delete", "job", "many", "--cascade=foreground") })
	for range completions/100 + 1 {
		if r := try("", "wait", "job/many", "--for=condition=Complete", "--timeout=85s"); r.code == 0 {
			break
		}
	}
	took := time.Since(begin)
	pods, err := site.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=many"})
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodSucceeded {
			on[p.Spec.NodeName]++
		}
	}
	if on["caisson-a"]+on["caisson-b"] != int(completions) || on["caisson-a"] == 0 || on["caisson-b"] == 0 {
		t.Errorf("pods ran on %v", on)
	}
	figures(t, map[string]any{"job_completions": completions, "job_parallelism": parallel, "job_s": took.Seconds(), "job_nodes": on})
}

// seen is when something of a pod was first seen.
type seen struct{ bound, running, over, gone time.Time }

// follow notes what becomes of pods with a label after act, until done says so.
func follow(t *testing.T, label string, act func(), done func([]seen) bool) []seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*deadline)
	defer cancel()
	pods := informers.NewSharedInformerFactoryWithOptions(site.client, 0, informers.WithNamespace("default"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label })).Core().V1().Pods().Informer()
	all, changed := map[types.UID]seen{}, make(chan struct{}, 1)
	var mu sync.Mutex
	take := func(o any, gone bool) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			p = o.(cache.DeletedFinalStateUnknown).Obj.(*corev1.Pod)
		}
		mu.Lock()
		all[p.UID] = all[p.UID].and(p, gone)
		mu.Unlock()
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { take(o, false) }, UpdateFunc: func(_, o any) { take(o, false) }, DeleteFunc: func(o any) { take(o, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
	go pods.Run(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), pods.HasSynced)
	go act()
	for {
		mu.Lock()
		now := slices.Collect(maps.Values(all))
		mu.Unlock()
		if done(now) {
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d pods, and some are not so far", len(now))
		}
	}
}

// and adds what a pod is now.
func (s seen) and(p *corev1.Pod, gone bool) seen {
	now := time.Now()
	first := func(at *time.Time, holds bool) {
		if at.IsZero() && holds {
			*at = now
		}
	}
	first(&s.bound, p.Spec.NodeName != "")
	first(&s.running, p.Status.Phase == corev1.PodRunning)
	first(&s.over, p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
	first(&s.gone, gone)
	return s
}

// all says that n pods have come so far.
func all(n int, far func(seen) time.Time) func([]seen) bool {
	return func(pods []seen) bool {
		return len(pods) == n && !slices.ContainsFunc(pods, func(s seen) bool { return far(s).IsZero() })
	}
}

func running(s seen) time.Time { return s.running }
func over(s seen) time.Time    { return s.over }
func gone(s seen) time.Time    { return s.gone }
