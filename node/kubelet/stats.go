package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/pod"
)

// used is the use of one container.
type used struct {
	labels map[string]string
	stats  *caissonv1.SandboxStats
	at     time.Time
	start  time.Time
}

func (s *Server) used(ctx context.Context) ([]used, error) {
	live, err := s.Pods.Live(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[string]*caissonv1.Sandbox{}
	for _, b := range live {
		byID[b.Id] = b
	}
	var all []used
	req := &caissonv1.StatsRequest{Labels: map[string]string{pod.LabelNode: s.Node}, NoStream: true}
	err = s.Caisson.Stats(ctx, req, func(r *caissonv1.StatsResponse) error {
		for _, one := range r.Sandboxes {
			if b := byID[one.SandboxId]; b != nil {
				all = append(all, used{labels: b.Labels, stats: one, at: r.Time.AsTime(), start: b.CreatedAt.AsTime()})
			}
		}
		return nil
	})
	return all, err
}

func (u used) nanos() uint64 { return uint64(u.stats.GetCpu().AsDuration()) }

func (s *Server) summary(ctx context.Context) (*stats.Summary, error) {
	all, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	h, err := readHost()
	if err != nil {
		return nil, err
	}
	now, cpu := metav1.Now(), uint64(h.cpu)
	sum := &stats.Summary{Node: stats.NodeStats{
		NodeName: s.Node, StartTime: metav1.NewTime(h.booted),
		CPU:    &stats.CPUStats{Time: now, UsageCoreNanoSeconds: &cpu},
		Memory: &stats.MemoryStats{Time: now, UsageBytes: &h.memory, WorkingSetBytes: &h.memory, AvailableBytes: &h.available},
	}}
	for _, u := range all {
		total, bytes := u.nanos(), uint64(u.stats.MemoryBytes)
		rate := uint64(u.stats.CpuPercent * 1e7) // percent of a CPU in billionths of one
		at := metav1.NewTime(u.at)
		c := &stats.CPUStats{Time: at, UsageNanoCores: &rate, UsageCoreNanoSeconds: &total}
		m := &stats.MemoryStats{Time: at, UsageBytes: &bytes, WorkingSetBytes: &bytes}
		sum.Pods = append(sum.Pods, stats.PodStats{
			PodRef:    stats.PodReference{Name: u.labels[pod.LabelPod], Namespace: u.labels[pod.LabelNamespace], UID: u.labels[pod.LabelUID]},
			StartTime: metav1.NewTime(u.start), CPU: c, Memory: m,
			Containers: []stats.ContainerStats{{Name: u.labels[pod.LabelContainer], StartTime: metav1.NewTime(u.start), CPU: c, Memory: m}},
		})
	}
	return sum, nil
}

// metrics serves what metrics-server reads, in the text form of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	all, err := s.used(r.Context())
	var h host
	if err == nil {
		h, err = readHost()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte(metricsText(h, all)))
}

func metricsText(h host, all []used) string {
	var cpu, memory, pods, podMemory, began strings.Builder
	for _, u := range all {
		at, seconds := u.at.UnixMilli(), float64(u.nanos())/1e9
		of := fmt.Sprintf("namespace=%q,pod=%q", u.labels[pod.LabelNamespace], u.labels[pod.LabelPod])
		in := fmt.Sprintf("container=%q,", u.labels[pod.LabelContainer]) + of
		fmt.Fprintf(&cpu, "container_cpu_usage_seconds_total{%s} %g %d\n", in, seconds, at)
		fmt.Fprintf(&memory, "container_memory_working_set_bytes{%s} %d %d\n", in, u.stats.MemoryBytes, at)
		fmt.Fprintf(&began, "container_start_time_seconds{%s} %g\n", in, float64(u.start.UnixMilli())/1e3)
		fmt.Fprintf(&pods, "pod_cpu_usage_seconds_total{%s} %g %d\n", of, seconds, at)
		fmt.Fprintf(&podMemory, "pod_memory_working_set_bytes{%s} %d %d\n", of, u.stats.MemoryBytes, at)
	}
	now := time.Now().UnixMilli()
	var b strings.Builder
	for _, m := range []struct{ name, kind, samples string }{
		{"container_cpu_usage_seconds_total", "counter", cpu.String()},
		{"container_memory_working_set_bytes", "gauge", memory.String()},
		{"container_start_time_seconds", "gauge", began.String()},
		{"node_cpu_usage_seconds_total", "counter", fmt.Sprintf("node_cpu_usage_seconds_total %f %d\n", h.cpu.Seconds(), now)},
		{"node_memory_working_set_bytes", "gauge", fmt.Sprintf("node_memory_working_set_bytes %d %d\n", h.memory, now)},
		{"pod_cpu_usage_seconds_total", "counter", pods.String()},
		{"pod_memory_working_set_bytes", "gauge", podMemory.String()},
		{"scrape_error", "gauge", "scrape_error 0\n"},
	} {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s", m.name, m.kind, m.samples)
	}
	return b.String()
}
