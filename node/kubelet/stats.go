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
	now := metav1.Now()
	sum := &stats.Summary{Node: stats.NodeStats{NodeName: s.Node, StartTime: now}}
	var cpu, memory uint64
	for _, u := range all {
		total, bytes := u.nanos(), uint64(u.stats.MemoryBytes)
		rate := uint64(u.stats.CpuPercent * 1e7) // percent of a CPU in billionths of one
		cpu, memory = cpu+total, memory+bytes
		at := metav1.NewTime(u.at)
		c := &stats.CPUStats{Time: at, UsageNanoCores: &rate, UsageCoreNanoSeconds: &total}
		m := &stats.MemoryStats{Time: at, UsageBytes: &bytes, WorkingSetBytes: &bytes}
		sum.Pods = append(sum.Pods, stats.PodStats{
			PodRef:    stats.PodReference{Name: u.labels[pod.LabelPod], Namespace: u.labels[pod.LabelNamespace], UID: u.labels[pod.LabelUID]},
			StartTime: metav1.NewTime(u.start), CPU: c, Memory: m,
			Containers: []stats.ContainerStats{{Name: u.labels[pod.LabelContainer], StartTime: metav1.NewTime(u.start), CPU: c, Memory: m}},
		})
	}
	sum.Node.CPU = &stats.CPUStats{Time: now, UsageCoreNanoSeconds: &cpu}
	sum.Node.Memory = &stats.MemoryStats{Time: now, UsageBytes: &memory, WorkingSetBytes: &memory}
	return sum, nil
}

// metrics serves what metrics-server reads, in the text form of Prometheus.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	all, err := s.used(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte(metricsText(all)))
}

func metricsText(all []used) string {
	var cpu, memory, pods, podMemory, began strings.Builder
	var totalCPU float64
	var totalMemory int64
	for _, u := range all {
		at, seconds := u.at.UnixMilli(), float64(u.nanos())/1e9
		totalCPU, totalMemory = totalCPU+seconds, totalMemory+u.stats.MemoryBytes
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
		{"node_cpu_usage_seconds_total", "counter", fmt.Sprintf("node_cpu_usage_seconds_total %g %d\n", totalCPU, now)},
		{"node_memory_working_set_bytes", "gauge", fmt.Sprintf("node_memory_working_set_bytes %d %d\n", totalMemory, now)},
		{"pod_cpu_usage_seconds_total", "counter", pods.String()},
		{"pod_memory_working_set_bytes", "gauge", podMemory.String()},
		{"scrape_error", "gauge", "scrape_error 0\n"},
	} {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s", m.name, m.kind, m.samples)
	}
	return b.String()
}
