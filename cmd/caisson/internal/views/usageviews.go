package views

import (
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type VolumeView struct {
	Name      string     `json:"name"`
	Owner     uint32     `json:"owner"`
	CreatedAt *time.Time `json:"created_at"`
	UsedBy    []string   `json:"used_by"`
}

func VolumeViewOf(v *caissonv1.Volume) VolumeView {
	return VolumeView{v.GetName(), v.GetOwner(), TimeOf(v.GetCreatedAt()), OrEmpty(v.GetUsedBy())}
}

type historyView struct {
	SandboxID        string       `json:"sandbox_id"`
	Name             string       `json:"name"`
	State            string       `json:"state"`
	MemoryLimitBytes int64        `json:"memory_limit_bytes"`
	MilliCPU         int64        `json:"milli_cpu"`
	PIDsLimit        int64        `json:"pids_limit"`
	CreatedAt        *time.Time   `json:"created_at"`
	EndedAt          *time.Time   `json:"ended_at,omitempty"`
	Image            string       `json:"image,omitempty"`
	Execs            []ExecView   `json:"execs,omitempty"`
	Samples          []sampleView `json:"samples"`
}

func HistoryViewOf(h *caissonv1.HistoryResponse) historyView {
	return historyView{
		h.SandboxId, h.Name, h.State, h.MemoryLimitBytes, h.MilliCpu, h.PidsLimit,
		TimeOf(h.CreatedAt), TimeOf(h.EndedAt), h.Image, Each(h.Execs, ExecViewOf), Each(h.Samples, sampleViewOf),
	}
}

type sampleView struct {
	Time          time.Time `json:"time"`
	CPUPercent    float64   `json:"cpu_percent"`
	MemoryBytes   int64     `json:"memory_bytes"`
	PIDs          int64     `json:"pids"`
	IOReadBytes   int64     `json:"io_read_bytes"`
	IOWriteBytes  int64     `json:"io_write_bytes"`
	SentBytes     int64     `json:"sent_bytes"`
	ReceivedBytes int64     `json:"received_bytes"`
}

func sampleViewOf(s *caissonv1.UsageSample) sampleView {
	return sampleView{s.Time.AsTime(), s.CpuPercent, s.MemoryBytes, s.Pids, s.IoReadBytes, s.IoWriteBytes, s.SentBytes, s.ReceivedBytes}
}

type poolView struct {
	Profile  string  `json:"profile"`
	Image    string  `json:"image"`
	Ready    int32   `json:"ready"`
	Filling  int32   `json:"filling"`
	Size     int32   `json:"size"`
	Target   int32   `json:"target"`
	Max      int32   `json:"max"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Failures int64   `json:"failures"`
	RefillMS float64 `json:"refill_ms"`
}

func PoolViewOf(p *caissonv1.PoolStats) poolView {
	return poolView{p.Profile, p.Image, p.Ready, p.Filling, p.Size, p.Target, p.Max, p.Hits, p.Misses, p.Failures, Milliseconds(p.Refill)}
}

// networkView is what went through the gateway for one sandbox.
type networkView struct {
	SandboxID string      `json:"sandbox_id"`
	Name      string      `json:"name"`
	Network   string      `json:"network"`
	Egress    *egressView `json:"egress"`
}

func NetworkViewOf(n *caissonv1.NetworkStats) networkView {
	return networkView{n.SandboxId, n.Name, n.Network, egressViewOf(n.Egress)}
}

type infoView struct {
	Sandboxes map[string]int32 `json:"sandboxes"`
	Execs     int32            `json:"execs"`
	Queued    int32            `json:"queued"`
	Pools     []poolView       `json:"pools"`
	Networks  []networkView    `json:"networks"`
}

func InfoViewOf(r *caissonv1.InfoResponse) infoView {
	return infoView{OrEmptyMap(r.Sandboxes), r.Execs, r.Queued, Each(r.Pools, PoolViewOf), Each(r.Networks, NetworkViewOf)}
}
