package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// The control plane does what these tests use. They show that our node tells it enough: capacity,
// labels, taints, conditions, and the end of each pod.

// sleeper is a container that runs on, with further fields.
func sleeper(more string) string {
	return "containers: [{name: c, image: base, command: [sh, -c, '" + strings.ReplaceAll(obeys, "'", "''") + "'], " + more + "}]"
}

// asking is a container's request of CPU or memory.
func asking(what string) string { return sleeper("resources: {requests: {" + what + "}}") }

// namespace makes one that lives as long as the test.
func namespace(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "create", "namespace", name)
	t.Cleanup(func() { kubectl(t, "delete", "namespace", name, "--timeout=60s") })
	if err := until("its service account is there", func() error {
		if r := try("", "get", "serviceaccount", "default", "-n", name); r.code != 0 {
			return fmt.Errorf("%s", r.errs)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// admit makes a pod in a namespace, which lives as long as that.
func admit(namespace, name, spec string) result {
	return try(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec: {terminationGracePeriodSeconds: 1, %s}\n",
		name, namespace, spec), "create", "-f", "-")
}

// admitted makes a pod that must be taken, and waits until it runs.
func admitted(t *testing.T, namespace, name, spec string) {
	t.Helper()
	if r := admit(namespace, name, spec); r.code != 0 {
		t.Fatalf("%s: %s", name, r.errs)
	}
	kubectl(t, "wait", "pod/"+name, "-n", namespace, "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
}

// denied says if the API server does not take a pod, and why.
func denied(t *testing.T, r result, why string) {
	t.Helper()
	if r.code == 0 || !strings.Contains(r.errs, why) {
		t.Errorf("it is not refused by %q: %+v", why, r)
	}
}

// unscheduled waits until the scheduler finds no place for a pod.
func unscheduled(t *testing.T, name, why string) {
	t.Helper()
	if err := until(name+" has no place", func() error {
		got := kubectl(t, "get", "pod", name, "-o", `jsonpath={.spec.nodeName}|{.status.conditions[?(@.type=="PodScheduled")].message}`)
		if !strings.HasPrefix(got, "|") || !strings.Contains(got, why) {
			return fmt.Errorf("%q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// sandboxes are those of a pod, on all nodes, with all that is known of them.
func sandboxes(t *testing.T, name string) (all []*caissonv1.InspectResponse) {
	t.Helper()
	for _, n := range site.nodes {
		l, err := n.caisson.List(t.Context(), &caissonv1.ListRequest{Labels: map[string]string{"k8s-pod": name}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Sandboxes {
			i, err := n.caisson.Inspect(t.Context(), &caissonv1.InspectRequest{Ref: s.Id})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, i)
		}
	}
	return all
}

func nodeOf(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
}

func TestResourceQuota(t *testing.T) {
	namespace(t, "quota")
	admitted(t, "quota", "before", asking("memory: 64Mi"))
	kubectl(t, "delete", "pod", "before", "-n", "quota")
	kubectl(t, "create", "quota", "q", "-n", "quota", "--hard=requests.memory=64Mi,pods=5")
	if err := until("the quota counts", func() error {
		if got := kubectl(t, "get", "quota", "q", "-n", "quota", "-o", "jsonpath={.status.used.pods}"); got != "0" {
			return fmt.Errorf("%q pods", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	admitted(t, "quota", "first", asking("memory: 48Mi"))
	denied(t, admit("quota", "second", asking("memory: 32Mi")), "exceeded quota: q, requested: requests.memory=32Mi")
	kubectl(t, "delete", "pod", "first", "-n", "quota")
	if err := until("its share is free", func() error {
		if r := admit("quota", "third", asking("memory: 32Mi")); r.code != 0 {
			return fmt.Errorf("%s", r.errs)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestLimitRange: a namespace's defaults become limits of the sandbox, in the kernel too.
func TestLimitRange(t *testing.T) {
	namespace(t, "range")
	limits := func(name string) string {
		admitted(t, "range", name, sleeper(""))
		all := sandboxes(t, name)
		if len(all) != 1 {
			t.Fatalf("%s has %d sandboxes", name, len(all))
		}
		return fmt.Sprintf("%d bytes, the kernel's %s, %d milli CPUs", all[0].Limits.GetMemoryBytes(), kernels(t, all[0].Cgroup), all[0].Limits.GetMilliCpu())
	}
	equal(t, "without it", limits("without"), "536870912 bytes, the kernel's 536870912, 1000 milli CPUs")
	must(t, `{apiVersion: v1, kind: LimitRange, metadata: {name: r, namespace: range},
  spec: {limits: [{type: Container, default: {memory: 96Mi, cpu: 250m}, max: {memory: 128Mi}}]}}`)
	equal(t, "with it", limits("with"), "100663296 bytes, the kernel's 100663296, 250 milli CPUs")
	denied(t, admit("range", "above", sleeper("resources: {limits: {memory: 129Mi}}")), "maximum memory usage per Container is 128Mi")
}

// kernels is the memory that a control group may have, of either version of cgroups.
func kernels(t *testing.T, group string) string {
	t.Helper()
	for _, file := range []string{"memory/" + group + "/memory.limit_in_bytes", group + "/memory.max"} {
		if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", file)); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	t.Fatalf("no file says what %q may have", group)
	return ""
}

// TestPreemption: on a full node a pod has no place, and with a higher priority takes another's.
func TestPreemption(t *testing.T) {
	n := site.nodes[0].name
	cpu := kubectl(t, "get", "node", n, "-o", "jsonpath={.status.allocatable.cpu}")
	kubectl(t, "create", "priorityclass", "urgent", "--value=1000")
	t.Cleanup(func() { kubectl(t, "delete", "priorityclass", "urgent") })
	whole := fmt.Sprintf("nodeSelector: {kubernetes.io/hostname: %s}, %s", n, asking("cpu: '"+cpu+"'"))
	apply(t, "low", "{"+whole+"}")
	phase(t, "low", "Running")
	apply(t, "equal", "{"+whole+"}")
	unscheduled(t, "equal", "Insufficient cpu")
	kubectl(t, "delete", "pod", "equal")
	if all := sandboxes(t, "low"); len(all) != 1 {
		t.Fatalf("it has %d sandboxes", len(all))
	}
	apply(t, "high", "{priorityClassName: urgent, "+whole+"}")
	phase(t, "high", "Running")
	equal(t, "its node", nodeOf(t, "high"), n)
	if r := try("", "get", "pod", "low"); r.code == 0 || len(sandboxes(t, "low")) != 0 {
		t.Errorf("the other one is there: %s", r.out)
	}
}

// TestTopologySpread: pods that prefer one node are on both as evenly as they must.
func TestTopologySpread(t *testing.T) {
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 6
  selector: {matchLabels: {of: %[1]s}}
  template: {metadata: {labels: {of: %[1]s}}, spec: {%[2]saffinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution:
    [{weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[3]s]}]}}]}}, %[4]s}}
`
	n := site.nodes[0].name
	for _, c := range []struct{ name, constraint, want string }{
		{"preferring", "", "6 and 0"},
		{"spread", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {of: spread}}}], ", "3 and 3"},
	} {
		must(t, fmt.Sprintf(deployment, c.name, c.constraint, n, asking("memory: 32Mi")))
		t.Cleanup(func() { kubectl(t, "delete", "deployment", c.name) })
		kubectl(t, "rollout", "status", "deployment/"+c.name, "--timeout=60s")
		on := kubectl(t, "get", "pods", "-l", "of="+c.name, "-o", "jsonpath={.items[*].spec.nodeName}")
		equal(t, c.name, fmt.Sprintf("%d and %d", strings.Count(on, n), strings.Count(on, site.nodes[1].name)), c.want)
	}
}

// TestDisruptionBudget: a pod may not be evicted before another one is ready.
func TestDisruptionBudget(t *testing.T) {
	evict := func(name string) error {
		return site.client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	}
	box(t, "free", obeys, "--labels=of=budget")
	phase(t, "free", "Running")
	if err := evict("free"); err != nil {
		t.Fatalf("without a budget: %v", err)
	}
	kubectl(t, "wait", "pod/free", "--for=delete", "--timeout=60s")
	kubectl(t, "create", "poddisruptionbudget", "budget", "--selector=of=budget", "--min-available=1")
	t.Cleanup(func() { kubectl(t, "delete", "poddisruptionbudget", "budget") })
	box(t, "only", obeys, "--labels=of=budget")
	must(t, "{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {of: budget}}, spec: {"+
		sleeper("readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1}")+"}}")
	t.Cleanup(func() { kubectl(t, "delete", "pod", "other", "--grace-period=1") })
	phase(t, "only", "Running")
	phase(t, "other", "Running")
	allowed := func(want string) {
		t.Helper()
		kubectl(t, "wait", "poddisruptionbudget/budget", "--for=jsonpath={.status.currentHealthy}="+want, "--timeout=60s")
	}
	allowed("1")
	if err := evict("only"); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("with a budget: %v", err)
	}
	kubectl(t, "exec", "other", "--", "touch", "/tmp/ready")
	allowed("2")
	if err := evict("only"); err != nil {
		t.Errorf("with another pod that is ready: %v", err)
	}
	kubectl(t, "wait", "pod/only", "--for=delete", "--timeout=60s")
	if left := sandboxes(t, "only"); len(left) != 0 {
		t.Errorf("%d sandboxes are left", len(left))
	}
}

// TestTaints keeps pods away from a node, and takes away those that are there.
func TestTaints(t *testing.T) {
	n := site.nodes[0].name
	here := "nodeSelector: {kubernetes.io/hostname: " + n + "}, " + asking("memory: 32Mi")
	apply(t, "before", "{"+here+"}")
	phase(t, "before", "Running")
	kubectl(t, "taint", "node", n, "test=x:NoSchedule")
	t.Cleanup(func() { kubectl(t, "taint", "node", n, "test-") })
	apply(t, "kept-away", "{"+here+"}")
	unscheduled(t, "kept-away", "untolerated taint")
	apply(t, "tolerant", "{tolerations: [{key: test, operator: Exists}], "+here+"}")
	phase(t, "tolerant", "Running")
	phase(t, "before", "Running") // it was there, and stays by this one
	kubectl(t, "taint", "node", n, "test=x:NoExecute")
	kubectl(t, "wait", "pod/before", "--for=delete", "--timeout=60s")
	if left := sandboxes(t, "before"); len(left) != 0 {
		t.Errorf("%d sandboxes are left", len(left))
	}
	phase(t, "tolerant", "Running")
}

// TestRuntimeClass: the nodeSelector of its class is a pod's own.
func TestRuntimeClass(t *testing.T) {
	must(t, "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: labelled}, handler: caisson, scheduling: {nodeSelector: {test: here}}}")
	t.Cleanup(func() { kubectl(t, "delete", "runtimeclass", "labelled") })
	apply(t, "classless", "{"+asking("memory: 32Mi")+"}")
	phase(t, "classless", "Running")
	apply(t, "class", "{runtimeClassName: labelled, "+asking("memory: 32Mi")+"}")
	unscheduled(t, "class", "didn't match Pod's node affinity/selector")
	n := site.nodes[1].name
	kubectl(t, "label", "node", n, "test=here")
	t.Cleanup(func() { kubectl(t, "label", "node", n, "test-") })
	phase(t, "class", "Running")
	equal(t, "its node", nodeOf(t, "class"), n)
	equal(t, "a command", kubectl(t, "exec", "class", "--", "echo", "runs"), "runs\n")
}
