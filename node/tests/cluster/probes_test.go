package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// apply makes what a manifest says, and ends it with the test.
func apply(t *testing.T, name, spec string) {
	t.Helper()
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	if r := try(manifest, "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("apply: %s", r.errs)
	}
	t.Cleanup(func() { kubectl(t, "delete", "pod", name, "--ignore-not-found", "--grace-period=1") })
}

// eventually waits until a field of a pod is as wanted.
func eventually(t *testing.T, name, path, want string) {
	t.Helper()
	if err := until(path+" is "+want, func() error {
		if got := kubectl(t, "get", "pod", name, "-o", "jsonpath={"+path+"}"); got != want {
			return fmt.Errorf("%q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func events(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "get", "events", "--field-selector=involvedObject.name="+name, "-o", "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}")
}

// TestProbes has a server that stops to answer when a file says so.
func TestProbes(t *testing.T) {
	apply(t, "probed", `{terminationGracePeriodSeconds: 5, containers: [{name: c, image: base,
  ports: [{name: web, containerPort: 8080}],
  command: [sh, -c, 'sleep 1; touch /tmp/up; while [ ! -e /tmp/stuck ]; do printf "HTTP/1.0 200 OK\r\n\r\n" | nc -l -p 8080 >/dev/null; done; sleep 1000'],
  startupProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, failureThreshold: 30},
  readinessProbe: {tcpSocket: {port: web}, periodSeconds: 1},
  livenessProbe: {httpGet: {port: web}, periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 3}}]}`)
	eventually(t, "probed", ".status.containerStatuses[0].ready", "true")
	equal(t, "restarts", kubectl(t, "get", "pod", "probed", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"), "0")
	kubectl(t, "exec", "probed", "--", "touch", "/tmp/stuck")
	eventually(t, "probed", ".status.containerStatuses[0].restartCount", "1")
	eventually(t, "probed", ".status.containerStatuses[0].ready", "true")
	for _, want := range []string{"Unhealthy Liveness probe failed: ", "Killing Container c failed liveness probe, will be restarted"} {
		if out := events(t, "probed"); !strings.Contains(out, want) {
			t.Errorf("no event %q in %s", want, out)
		}
	}
}

func TestHooks(t *testing.T) {
	apply(t, "hooked", `{terminationGracePeriodSeconds: 20, containers: [{name: c, image: base,
  command: [sh, -c, 'trap "echo TERM; exit 0" TERM; while :; do [ ! -e /tmp/said ] || { cat /tmp/said; rm /tmp/said; }; sleep 0.1; done'],
  lifecycle: {postStart: {exec: {command: [sh, -c, 'echo after > /tmp/said']}},
              preStop: {exec: {command: [sh, -c, 'echo before > /tmp/said; sleep 1']}}}}]}`)
	phase(t, "hooked", "Running")
	out, ended := &output{}, make(chan error, 1)
	cmd := prepare(t.Context(), "logs", "-f", "hooked")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	if err := until("the hook's word", func() error {
		if out.String() != "after\n" {
			return fmt.Errorf("%q", out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	kubectl(t, "delete", "pod", "hooked")
	if took := time.Since(begin); took < time.Second || took > 10*time.Second {
		t.Errorf("deleted in %s", took)
	}
	<-ended
	equal(t, "the log", strings.Replace(out.String(), "Terminated\n", "", 1), "after\nbefore\nTERM\n") // the shell tells of its sleep
}

func TestSleepHook(t *testing.T) {
	apply(t, "sleeps", `{containers: [{name: c, image: base, command: [sleep, "1000"], lifecycle: {preStop: {sleep: {seconds: 2}}}}]}`)
	phase(t, "sleeps", "Running")
	begin := time.Now()
	kubectl(t, "delete", "pod", "sleeps")
	if took := time.Since(begin); took < 2*time.Second || took > 10*time.Second {
		t.Errorf("deleted in %s", took)
	}
}
