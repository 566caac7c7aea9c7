package cost

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/cost/bound"
	"github.com/caisson-run/caisson/tests/harness"
)

// What a request of at most 1 MiB may cost the daemon: what package bound says, and half as much
// again, as other things of the daemon's and other processes on its processor count too.
const (
	tick       = 10 * time.Millisecond // of the kernel's count
	mostCPU    = bound.CPU * 3 / 2
	mostMemory = bound.Memory >> 10 // KiB
	tries      = 5
)

// cost is what the daemon takes for a request, the least of a few times: on a busy host the
// same work costs several times as much now and then.
func cost(t *testing.T, d *harness.Daemon, request func()) (cpu time.Duration, memoryKiB int) {
	t.Helper()
	for n := range tries {
		resetPeak(t, d.PID())
		before, memory := use(t, d.PID())
		request()
		after, peak := use(t, d.PID())
		if n == 0 {
			cpu, memoryKiB = after-before, peak-memory
		}
		cpu, memoryKiB = min(cpu, after-before), min(memoryKiB, peak-memory)
		if cpu <= mostCPU && memoryKiB <= mostMemory {
			break
		}
	}
	return cpu, memoryKiB
}

// use is the CPU that a process had so far, and the most memory that it had since resetPeak.
func use(t *testing.T, pid int) (cpu time.Duration, peakKiB int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	for _, field := range fields[11:13] { // utime and stime (proc_pid_stat(5)), in ticks
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(n) * tick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ = strings.Cut(string(status), "VmHWM:")
	if peakKiB, err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
		t.Fatal(err)
	}
	return cpu, peakKiB
}

// resetPeak makes VmHWM what the process has now (proc_pid_clear_refs(5)).
func resetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// post sends a body to a route and returns the status of the answer.
func post(t *testing.T, d *harness.Daemon, path string, body []byte) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
	}}}
	res, err := client.Post("http://caisson"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

// lines repeats a line with its number.
func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

const large = 1<<20 - 4096 // bytes

// dockerfiles are the worst for the planner that are known, each refused or planned.
func dockerfiles() map[string]string {
	return map[string]string{
		"doubled":         "FROM base\nENV A=x\n" + strings.Repeat("ENV A=$A$A\n", 500),
		"doubled labels":  "FROM base\nENV A=" + strings.Repeat("x", 60_000) + "\n" + lines(500, "LABEL l%d=$A\n"),
		"many names":      "FROM base\nENV " + lines(45_000, "n%d=v ") + "\nLABEL " + lines(45_000, "l%d=$n1 "),
		"nested defaults": "FROM base\nENV A=" + strings.Repeat("${A:-", 170_000) + strings.Repeat("}", 170_000) + "\n",
		"replacements":    "FROM base\nARG A=" + strings.Repeat("a", 4000) + "\nENV B=${A//a/" + strings.Repeat("b", 4000) + "}\n",
		"one long word":   "FROM base\nENV A=" + strings.Repeat("\\$", large/2) + "\n",
		"continuations":   "FROM base\nRUN true" + strings.Repeat(" \\\n#", large/4) + "\n",
		"here-documents":  "FROM base\nRUN" + lines(500, " <<E%d") + "\n" + lines(500, "E%d\n"),
		"stages":          lines(500, "FROM base AS s%d\n"),
		"sources":         "FROM base\nCOPY " + strings.Repeat("a ", 100_000) + "/d/\n",
	}
}

// bodies are requests by their routes: each message at the largest, deepest or with the most
// elements that the daemon takes.
func bodies(t *testing.T) map[string]struct{ path, body string } {
	t.Helper()
	list := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run := func(spec string) struct{ path, body string } {
		return struct{ path, body string }{"/v1/run", spec}
	}
	create := func(spec string) struct{ path, body string } {
		return struct{ path, body string }{"/v1/sandboxes", spec}
	}
	all := map[string]struct{ path, body string }{
		"deep":           run(strings.Repeat(`{"exec":`, large/8)),
		"deep list":      run(`{"exec":{"args":` + strings.Repeat("[", large)),
		"many arguments": run(`{"exec":{"args":[` + list(large/3, `""`) + `]}}`),
		"unknown fields": run("{" + list(large/11, `"u":[{}]`) + "}"),
		"same field":     run("{" + list(large/11, `"exec":{}`) + "}"),
		"escaped":        create(`{"labels":{"a":"` + strings.Repeat(`\u0001`, large/6) + `"}}`),
		"long number":    run(`{"exec":{"output_limit_bytes":` + strings.Repeat("9", large) + `}}`),
		"many inputs":    run(`{"exec":{"inputs":[` + list(large/24, `{"path":"/a","data":""}`) + `]}}`),
		"many labels":    create(`{"labels":{` + strings.TrimSuffix(lines(60_000, `"l%d":"v",`), ",") + `}}`),
		"many rules":     create(`{"allow":[` + list(large/9, `"a.b:1"`) + `]}`),
		"one long rule":  create(`{"allow":[` + quoted(strings.Repeat("a.", large/2)) + `]}`),
		"many mounts":    create(`{"mounts":[` + list(large/42, `{"type":"bind","source":"/","target":"/"}`) + `]}`),
		"many variables": create(`{"env":{` + strings.TrimSuffix(lines(60_000, `"V%d":"v",`), ",") + `}}`),
		"checked rules":  {"/v1/policy/check", `{"policy":{"allow":[` + list(large/12, `"*.a.b:1"`) + `]},"target":"a.b:1"}`},
	}
	for name, text := range dockerfiles() {
		all["Dockerfile: "+name] = struct{ path, body string }{"/v1/images/build", `{"name":"worst","needs_only":true,"dockerfile":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"}`}
	}
	return all
}

// A request of at most 1 MiB costs the daemon little, whatever it says. It may be refused.
func TestWorstRequests(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	for name, r := range bodies(t) {
		t.Run(name, func(t *testing.T) {
			status := 0
			cpu, memory := cost(t, d, func() { status = post(t, d, r.path, []byte(r.body)) })
			t.Logf("%s: %d bytes, %d, %s of CPU, %d KiB more", name, len(r.body), status, cpu, memory)
			if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
				t.Error("there is no such route")
			}
			if cpu > mostCPU || memory > mostMemory {
				t.Errorf("%s of CPU and %d KiB, want at most %s and %d", cpu, memory, mostCPU, mostMemory)
			}
		})
	}
	d.Run(t, "run", "--", "true")
}
