package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// create makes a pod of the node given; an empty one is for the scheduler.
func create(t *testing.T, name, label, node, script string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": label}}, Spec: template(script)}
	p.Spec.NodeName = node
	if _, err := site.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func p50(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}

// TestLatency runs one pod after the other.
func TestLatency(t *testing.T) {
	var starts, ends []time.Duration
	for i := range 20 {
		name := fmt.Sprintf("latency-%d", i)
		s := follow(t, "of="+name, func() { create(t, name, name, "", obeys) }, all(1, running))[0]
		starts = append(starts, s.running.Sub(s.bound))
		time.Sleep(200 * time.Millisecond) // the command sets its trap
		var begin time.Time
		s = follow(t, "of="+name, func() {
			begin = time.Now()
			if err := site.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}, all(1, gone))[0]
		ends = append(ends, s.gone.Sub(begin))
	}
	figures(t, map[string]any{"bound_to_running_p50_ms": p50(starts), "delete_p50_ms": p50(ends)})
}

// TestRate sends one node as many pods as it takes.
func TestRate(t *testing.T) {
	const count = 200
	n := site.nodes[0]
	program, daemon := n.program.cpu(), n.daemon.cpu()
	var begin time.Time
	pods := follow(t, "of=rate", func() {
		begin = time.Now()
		for i := range count {
			go create(t, fmt.Sprintf("rate-%d", i), "rate", n.name, "true")
		}
	}, all(count, over))
	last := slices.MaxFunc(pods, func(a, b seen) int { return a.over.Compare(b.over) }).over
	figures(t, map[string]any{
		"rate_pods": count, "pods_per_s": count / last.Sub(begin).Seconds(), "rate_gone_s": sweep(t, "of=rate", 0),
		"program_cpu_ms_per_pod": (n.program.cpu() - program).Seconds() * 1000 / count, "daemon_cpu_ms_per_pod": (n.daemon.cpu() - daemon).Seconds() * 1000 / count,
	})
}

// sweep deletes pods and returns how long it takes until they are gone.
func sweep(t *testing.T, label string, grace int64) float64 {
	t.Helper()
	begin := time.Now()
	err := site.client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, label, func() {}, func(pods []seen) bool {
		return !slices.ContainsFunc(pods, func(s seen) bool { return s.gone.IsZero() })
	})
	return time.Since(begin).Seconds()
}

// TestManyPods holds many pods on one node.
func TestManyPods(t *testing.T) {
	count := number(t, "CAISSON_TEST_PODS", 200)
	n := site.nodes[0]
	begin := time.Now()
	follow(t, "of=many", func() {
		for i := range count {
			go create(t, fmt.Sprintf("many-%d", i), "many", n.name, "exec sleep 1000")
		}
	}, all(count, running))
	started := time.Since(begin)
	time.Sleep(5 * time.Second) // what was queued is over
	const span = 20 * time.Second
	before, daemon := n.program.cpu(), n.daemon.cpu()
	time.Sleep(span) // what is used meanwhile is the figure
	idle := (n.program.cpu() - before).Seconds() / span.Seconds()
	idleDaemon := (n.daemon.cpu() - daemon).Seconds() / span.Seconds()
	rss := n.program.rss()
	figures(t, map[string]any{
		"pods": count, "pods_running_s": started.Seconds(), "program_rss_mb": rss >> 20, "daemon_rss_mb": n.daemon.rss() >> 20,
		"program_idle_cpu_percent": idle * 100, "daemon_idle_cpu_percent": idleDaemon * 100, "pods_gone_s": sweep(t, "of=many", 1),
	})
	if rss > 120<<20 {
		t.Errorf("the program has %d MB", rss>>20)
	}
}
