package escape

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// replaced are filters that a runtime puts in force instead of the declared one, each with
// an attempt that ends otherwise under it.
var replaced = []struct {
	kind, what, attempt string
	declared, other     string // how the attempt ends
}{
	{"filter-allow", "a filter that allows everything", "socket(AF_NETLINK, NETLINK_GENERIC)", "EPERM", "ok"},
	{"filter-allow", "a filter that allows everything", "keyctl", "EPERM", "ENOTSUP"},
	{"filter-rule", "a filter without one rule", "clone3", "ENOSYS", "EPERM"},
	{"filter-condition", "a filter without one condition", "socket(AF_NETLINK, NETLINK_GENERIC)", "EPERM", "ok"},
	{"filter-arch", "a filter that lets in another architecture", call32, killed32, "ok"},
}

// TestReplacedFilters: a filter other than the declared one is found out, whatever it
// changes, before anything of the caller's has run.
//
//caisson:host the comparison is the same on every kernel, and every sandbox there passes it
func TestReplacedFilters(t *testing.T) {
	bin := tamperedBin(t)
	d := harness.Start(t, "--bin-dir", bin, "--config", fewIDs(t))
	tamper := func(kind string) { must(t, os.WriteFile(filepath.Join(bin, "tamper"), []byte(kind), 0o600)) }
	tamper("nothing")
	filter := declaredFilter(t, d)
	d.Run(t, "run", "--", "true") // the stand-in as such changes nothing
	for _, r := range replaced {
		t.Run(r.kind+" "+r.attempt, func(t *testing.T) {
			tamper("nothing")
			got := attemptUnder(t, bin, filter, r.attempt)
			if r.kind == "filter-arch" && got == lacking32 { // TestAttempts finds it so unconfined
				harness.Except(t, no32, true)
			}
			if got != r.declared {
				t.Errorf("under the declared filter %q ends with %q, want %q", r.attempt, got, r.declared)
			}
			tamper(r.kind)
			without := shut // of the daemon, nothing keeps the runtime from that
			if got := attemptUnder(t, bin, filter, r.attempt); got == r.other {
				without = open
			} else {
				t.Errorf("under the replaced filter %q ends with %q, want %q", r.attempt, got, r.other)
			}
			t.Cleanup(func() {
				scores.add(score{id: "P156", name: "a runtime that puts in force " + r.what + ": " + r.attempt, held: !t.Failed(), control: without})
			})
			f := d.Refused(t, "SBX-605", "run", "--json", "--", "true")
			if !strings.Contains(f.Error.Message+f.Error.Cause, "seccomp.decisions") {
				t.Errorf("the refusal does not tell of the filter: %+v", f.Error)
			}
			d.AwaitNoSandbox(t)
		})
	}
	for _, tt := range []struct{ kind, what string }{
		{"no filter", "adds no filter that bounds netlink sockets"},
		{"another filter", "adds a filter that allows every netlink socket"},
	} {
		t.Run("PID 1 with "+tt.kind, func(t *testing.T) {
			held(t, "P156", "a PID 1 that "+tt.what)
			d := harness.Start(t, "--bin-dir", binWithInit(t, tt.kind), "--config", fewIDs(t))
			f := d.Refused(t, "SBX-605", "run", "--json", "--", "true")
			if !strings.Contains(f.Error.Message+f.Error.Cause, "bounds netlink sockets") {
				t.Errorf("the refusal does not tell of the filter: %+v", f.Error)
			}
			d.AwaitNoSandbox(t)
		})
	}
	t.Run("one that only narrows", func(t *testing.T) {
		held(t, "P156", "a runtime that puts in force a filter that refuses one call more")
		tamper("filter-narrow")
		d.Refused(t, "SBX-605", "run", "--json", "--", "true")
		d.AwaitNoSandbox(t)
	})
	tamper("nothing")
	d.Run(t, "run", "--", "true") // what was found is not held against the honest
}

// binWithInit is a directory of programs of which PID 1 is a stand-in.
func binWithInit(t *testing.T, mode string) string {
	t.Helper()
	dir := harness.ProgramsWithout(t, "caisson-init")
	build := exec.Command("go", "build", "-ldflags", "-X 'main.mode="+mode+"'", "-o", filepath.Join(dir, "caisson-init"), "../integration/hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// declaredFilter is the filter of a sandbox in its OCI form.
func declaredFilter(t *testing.T, d *harness.Daemon) json.RawMessage {
	t.Helper()
	var view struct {
		Spec struct {
			Linux struct{ Seccomp json.RawMessage }
		} `json:"oci_spec_json"`
	}
	d.Run(t, "spec", "-o", "json", "--", "true").JSON(t, &view)
	if len(view.Spec.Linux.Seccomp) == 0 {
		t.Fatal("no filter is declared")
	}
	return view.Spec.Linux.Seccomp
}

// attemptUnder makes one attempt in a container of the stand-in's, under filter as the
// stand-in leaves it, without a daemon.
func attemptUnder(t *testing.T, bin string, filter json.RawMessage, attempt string) string {
	t.Helper()
	bundle := workspace(t)
	must(t, os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755))
	copyFile(t, prober(t), filepath.Join(bundle, "rootfs", "prober"), 0o755)
	runc := func(program string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(bin, program), append([]string{"--root", filepath.Join(bundle, "state")}, args...)...)
		out, err := cmd.Output()
		return string(out), err
	}
	_, err := runc("runc.real", "spec", "--bundle", bundle)
	must(t, err)
	path := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(path)
	must(t, err)
	var spec map[string]any
	must(t, json.Unmarshal(data, &spec))
	process, linux := spec["process"].(map[string]any), spec["linux"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/prober", "one", attempt}
	linux["seccomp"] = filter
	data, err = json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
	out, err := runc("runc", "run", "--bundle", bundle, filepath.Base(bundle))
	if err != nil && out != "" {
		t.Fatalf("%s: %v", out, err)
	}
	return out
}
