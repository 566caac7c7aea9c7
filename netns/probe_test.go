package netns

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

func TestProbeOfEachBackend(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		answers := map[string]finding.Answer{}
		for _, f := range ProbeFilters() {
			answers[f.Name] = f.Answer
			if strings.HasSuffix(f.Name, "iptables") && !strings.HasSuffix(f.Detail, ", "+string(b)) {
				t.Errorf("%s: %q, %v; want %s", f.Name, f.Detail, f.Err, b)
			}
		}
		for _, name := range []string{"iptables", "iptables rules", "ip6tables", "ip6tables rules"} {
			if answers[name] != finding.Yes {
				t.Errorf("%s: %s; want yes", name, answers[name])
			}
		}
	})
}

func TestProbeWithoutIPTables(t *testing.T) {
	needRoot(t)
	if err := Filters(); err != nil {
		t.Fatalf("the control, with iptables: %v", err)
	}
	saved := binaryDirs
	t.Cleanup(func() { binaryDirs = saved })
	binaryDirs = []string{t.TempDir()}
	if err := Filters(); sbxerr.Of(err) != sbxerr.NetRule || sbxerr.RemedyOf(err) != remedyMissing {
		t.Errorf("%v (remedy %q); want the code and the remedy that InstallRedirect gives", err, sbxerr.RemedyOf(err))
	}
	answers := map[string]finding.Answer{}
	for _, f := range append(Probe(), ProbeFilters()...) {
		answers[f.Name] = f.Answer
		if strings.Contains(f.Name, "iptables") && sbxerr.RemedyOf(f.Err) != remedyMissing {
			t.Errorf("%s: %v; want the remedy that InstallRedirect gives", f.Name, f.Err)
		}
	}
	if answers["network namespace"] != finding.Yes || answers["iptables"] != finding.No || answers["ip6tables"] != finding.No {
		t.Errorf("answers %v; want namespaces and no iptables", answers)
	}
}

// Commands that hang are killed, with what they started, and the probe says so.
//
//caisson:host takes minutes under emulation and is no matter of the kernel
func TestProbeWithHungIPTables(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	script := "#!/bin/sh\nPATH=/usr/bin:/bin\nsleep 1000 & echo $! >> " + pids + "; wait\n"
	for _, name := range []string{"iptables", "ip6tables"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dirs, timeout := binaryDirs, commandTimeout
	t.Cleanup(func() { binaryDirs, commandTimeout = dirs, timeout })
	binaryDirs, commandTimeout = []string{dir}, 500*time.Millisecond
	for _, f := range ProbeFilters() {
		if strings.Contains(f.Name, "iptables") && (f.Answer == finding.Yes || !errors.Is(f.Err, context.DeadlineExceeded)) {
			t.Errorf("%s: %s, %v; want no answer in time", f.Name, f.Answer, f.Err)
		}
	}
	started, err := os.ReadFile(pids)
	if err != nil || len(strings.Fields(string(started))) < 2 {
		t.Fatalf("the control: %q, %v; want a process of each family", started, err)
	}
	for _, pid := range strings.Fields(string(started)) {
		ended := func() bool {
			state, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(state), ") Z ")
		}
		for deadline := time.Now().Add(10 * time.Second); !ended(); time.Sleep(10 * time.Millisecond) { // nothing announces the end of another's child
			if time.Now().After(deadline) {
				t.Fatalf("process %s is left", pid)
			}
		}
	}
}

// The probe programs rules, and must do so in its own namespace only.
func TestProbeLeavesTheHostAlone(t *testing.T) {
	needRoot(t)
	save, err := exec.LookPath("iptables-save")
	if err != nil {
		t.Skipf("needs iptables: %v", err)
	}
	rules := func() string {
		// -t asks for the tables that the probe programs, without the date.
		var all string
		for _, table := range []string{"filter", "nat"} {
			out, err := exec.Command(save, "-t", table).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(string(out), "\n") {
				if line != "" && line[0] != '#' {
					all += line + "\n"
				}
			}
		}
		return all
	}
	before := rules()
	features := append(Probe(), ProbeFilters()...)
	if after := rules(); after != before {
		t.Errorf("the host's rules changed from\n%s\nto\n%s", before, after)
	}
	for _, f := range features {
		t.Logf("%s: %s (%s) %v", f.Name, f.Answer, f.Detail, f.Err)
		if (f.Answer == finding.Yes) != (f.Err == nil) {
			t.Errorf("%s answers %s with error %v", f.Name, f.Answer, f.Err)
		}
		if f.Needed && f.Answer != finding.Yes {
			t.Errorf("%s: %s, %v", f.Name, f.Answer, f.Err)
		}
	}
}
