package kubelet

import (
	"time"

	"github.com/prometheus/procfs"
)

// host is what all programs of the machine use. A sum over the sandboxes would decrease when one
// ends, and be zero without any: metrics-server takes no node for that.
type host struct {
	booted            time.Time
	cpu               time.Duration // since it booted, of all processors
	memory, available uint64        // in bytes
}

// readHost reads /proc/stat and /proc/meminfo (proc(5)).
func readHost() (host, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return host{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return host{}, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return host{}, err
	}
	t := stat.CPUTotal
	h := host{booted: time.Unix(int64(stat.BootTime), 0), cpu: time.Duration((t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ) * float64(time.Second))}
	if memory.MemTotalBytes != nil && memory.MemAvailableBytes != nil {
		h.memory, h.available = *memory.MemTotalBytes-*memory.MemAvailableBytes, *memory.MemAvailableBytes
	}
	return h, nil
}
