package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Report is all that was measured, on one machine in one go.
type Report struct {
	Date     time.Time `json:"date"`
	Machine  Machine   `json:"machine"`
	Rounds   int       `json:"rounds"`
	Done     []string  `json:"done"` // the measurements that were made
	Targets  []Target  `json:"targets"`
	Cold     []Run     `json:"cold_runs"`       // interleaved: A B C A B C
	InARow   []InARow  `json:"back_to_back_ms"` // the mean of runs without a pause
	Stages   []Stage   `json:"stages"`          // of cold runs, in order
	Made     Summary   `json:"sandbox_made"`    // all stages together
	Command  Summary   `json:"command"`         // `true` itself, from its start to its end
	Teardown Summary   `json:"teardown"`        // from the client's end until no trace is left
	Version  Summary   `json:"version"`
	Start    struct {
		First Summary `json:"first"` // with empty directories
		Again Summary `json:"again"`
	} `json:"daemon_start"`
	Memory struct {
		Daemon      Memory `json:"caissond"`       // idle, after its start
		DaemonAfter Memory `json:"caissond_after"` // idle, after all runs
		DaemonLast  Memory `json:"caissond_last"`  // idle, after an image of host tools as well
		Containerd  Memory `json:"containerd_after"`
		Init        Memory `json:"caisson_init"` // per sandbox
		Shim        Memory `json:"shim"`         // per sandbox
	} `json:"memory"`
	Throughput Throughput `json:"output"`
	FromHost   FromHost   `json:"from_host"`
	Sessions   []Section  `json:"sessions"`
}

// Section is one measurement of sessions.
type Section struct {
	Name    string   `json:"name"`
	Runs    []Run    `json:"runs,omitempty"`
	Figures []Figure `json:"figures,omitempty"`
	Trace   []Stage  `json:"trace,omitempty"` // where the time goes
}

// Figure is one number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Run is one contender's series.
type Run struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Skipped string   `json:"skipped,omitempty"`
	Took    *Summary `json:"took,omitempty"`
	// Ratio is caisson's time to this one's, by rounds: below 1, caisson is faster.
	Ratio float64 `json:"caisson_ratio,omitempty"`
}

// InARow is one contender's time for each of several runs without a pause.
type InARow struct {
	Name string  `json:"name"`
	Mean float64 `json:"mean_ms"`
}

// Stage is one step of the making of a sandbox.
type Stage struct {
	Name string `json:"name"`
	Summary
}

// Target is a figure that was promised.
type Target struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Target string  `json:"target"`
	Met    bool    `json:"met"`
}

// Machine is where it was measured and how busy that was.
type Machine struct {
	Kernel     string `json:"kernel"`
	CPUs       int    `json:"cpus"`
	MemoryMB   int64  `json:"memory_mb"`
	Cgroups    string `json:"cgroups"`
	LoadBefore string `json:"load_before"`
	LoadAfter  string `json:"load_after"`
}

func machine() Machine {
	m := Machine{CPUs: goruntime.NumCPU(), LoadBefore: load(), Cgroups: "v1"}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.MemoryMB = int64(info.Totalram) * int64(info.Unit) / 1e6
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		m.Cgroups = "v2"
	}
	return m
}

// load is the machine's load average of 1, 5 and 15 minutes.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg") // a hint for the reader
	fields := strings.Fields(string(data))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// below and atMost compare a figure with its target.
func below(name string, value, target float64, unit string) Target {
	return Target{name, value, fmt.Sprintf("< %v %s", target, unit), value < target}
}

func atMost(name string, value, target float64, unit string) Target {
	return Target{name, value, strings.TrimSpace(fmt.Sprintf("<= %v %s", target, unit)), value <= target}
}

func atLeast(name string, value, target float64, unit string) Target {
	return Target{name, value, strings.TrimSpace(fmt.Sprintf(">= %v %s", target, unit)), value >= target}
}

func (r *Report) target(t Target) { r.Targets = append(r.Targets, t) }

// targetRatio compares caisson with the contender of that name, where that
// took part.
func (r *Report) targetRatio(name string, runs []Run, other string, ratio float64) {
	for _, run := range runs {
		if run.Name == other && run.Took != nil {
			r.target(atMost(name, run.Ratio, ratio, ""))
		}
	}
}

func (r *Report) judge() {
	if ctr := r.run("ctr"); ctr != nil && ctr.Took != nil {
		r.Targets = append(r.Targets, atMost("cold run, to ctr run of the same containerd", ctr.Ratio, 0.6, ""))
	}
	if exec := r.stage("exec"); exec != nil {
		r.Targets = append(r.Targets, atMost("start of a command in a live sandbox", exec.P50, 2, "ms"))
	}
	r.Targets = append(r.Targets,
		below("caissond, idle (PSS)", max(r.Memory.Daemon.PSS, r.Memory.DaemonAfter.PSS), 40, "MB"),
		below("caisson-init (PSS)", r.Memory.Init.PSS, 4, "MB"),
		below("caisson version", r.Version.P50, 10, "ms"))
}

func (r *Report) did(section string) bool { return slices.Contains(r.Done, section) }

func (r *Report) run(name string) *Run {
	for i := range r.Cold {
		if r.Cold[i].Name == name {
			return &r.Cold[i]
		}
	}
	return nil
}

func (r *Report) stage(name string) *Stage {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return &r.Stages[i]
		}
	}
	return nil
}

func (r *Report) print(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
