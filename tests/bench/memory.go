package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settle is what a process is left alone for before its memory is measured.
const settle = 3 * time.Second

// Memory is what a process holds, in MB of a million bytes.
type Memory struct {
	PSS float64 `json:"pss_mb"` // shared pages by halves, thirds, …
	RSS float64 `json:"rss_mb"`
}

func memoryOf(t *driver, pid int) Memory {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var m Memory
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		for key, value := range map[string]*float64{"Pss:": &m.PSS, "Rss:": &m.RSS} {
			if len(fields) > 1 && fields[0] == key {
				kib, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				*value = round(kib * 1024 / 1e6)
			}
		}
	}
	if m.PSS == 0 {
		t.Fatalf("process %d has no memory", pid)
	}
	return m
}

// sandboxMemory measures PID 1 and the shim of a sandbox whose command sleeps.
func (s *stand) sandboxMemory() (init, shim Memory) {
	id := strings.TrimSpace(s.daemon.Run(s.t, "run", "-d", "--", "sleep", "1000").Stdout)
	var detail struct{ PID int }
	s.daemon.Run(s.t, "inspect", id).JSONIn(s.t, "sandbox", &detail)
	time.Sleep(settle)
	init, shim = memoryOf(s.t, detail.PID), memoryOf(s.t, parentOf(s.t, detail.PID))
	s.daemon.Run(s.t, "rm", "--force", id)
	s.daemon.AwaitNoSandbox(s.t)
	return init, shim
}

func parentOf(t *driver, pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name before may hold anything
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// containerd is the daemon's only child that lives as long as the daemon.
func (s *stand) containerd() int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.daemon.PID())) // a child belongs to the thread that made it
	if err != nil {
		s.t.Fatal(err)
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // the thread is gone meanwhile
		for child := range strings.FieldsSeq(string(children)) {
			exe, _ := os.Readlink("/proc/" + child + "/exe") // gone meanwhile
			if pid, err := strconv.Atoi(child); err == nil && filepath.Base(exe) == "containerd" {
				return pid
			}
		}
	}
	s.t.Fatal("the daemon has no containerd")
	return 0
}
