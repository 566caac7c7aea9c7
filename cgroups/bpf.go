package cgroups

import (
	"errors"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/caisson-run/caisson/finding"
)

// devicePrograms counts the BPF programs that guard devices for the v2 group
// at dir, the ones of its ancestors included (bpf(2), BPF_PROG_QUERY, kernel
// 4.15).
func devicePrograms(dir string) (int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	result, err := link.QueryPrograms(link.QueryOptions{
		Target:     int(f.Fd()),
		Attach:     ebpf.AttachCGroupDevice,
		QueryFlags: queryEffective,
	})
	if err != nil {
		return 0, err
	}
	return len(result.Programs), nil
}

// queryEffective is BPF_F_QUERY_EFFECTIVE of linux/bpf.h.
const queryEffective = 1 << 0

func deviceProgramsWork(dir string) finding.Answer {
	_, err := devicePrograms(dir)
	switch {
	case err == nil:
		return finding.Yes
	case errors.Is(err, ebpf.ErrNotSupported):
		return finding.No
	default:
		return finding.Unknown
	}
}
