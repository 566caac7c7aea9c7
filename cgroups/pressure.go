package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// HostMemory is how much memory the machine has left.
type HostMemory struct {
	Available int64 // bytes that could be had without swapping (proc(5), MemAvailable)
	Total     int64 // bytes
	// Stalled is the share of the last ten seconds, in percent, in which some
	// process waited for memory (PSI, "some avg10"). Not every kernel tells.
	Stalled      float64
	StalledKnown bool
}

// Pressure reads how much memory the machine has left.
func Pressure() (HostMemory, error) { return pressureOf("/proc") }

func pressureOf(proc string) (HostMemory, error) {
	const op = "cgroups.pressure"
	var m HostMemory
	data, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err == nil {
		m, err = parseMeminfo(string(data))
	}
	if err != nil {
		return HostMemory{}, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	data, err = os.ReadFile(filepath.Join(proc, "pressure", "memory"))
	switch {
	case err == nil:
		m.Stalled, m.StalledKnown = parseStall(string(data))
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EOPNOTSUPP): // switched off at boot
		return HostMemory{}, sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	return m, nil
}

func parseMeminfo(text string) (HostMemory, error) {
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 53); err == nil && n >= 0 {
			values[fields[0]] = n << 10
		}
	}
	available, ok := values["MemAvailable:"]
	if total := values["MemTotal:"]; ok && total > 0 {
		return HostMemory{Available: available, Total: total}, nil
	}
	return HostMemory{}, fmt.Errorf("find MemAvailable and MemTotal in %.200q", text)
}

// parseStall reads "some avg10=0.00 avg60=…" (accounting/psi.rst).
func parseStall(text string) (float64, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "some avg10=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseFloat(number, 64)
		return n, err == nil && n >= 0 && n <= 100
	}
	return 0, false
}
