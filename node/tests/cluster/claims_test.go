package cluster

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// permitted binds a ClusterRole of the manifest to each node until the test ends.
func permitted(t *testing.T, role string) {
	t.Helper()
	for _, n := range site.nodes {
		name := role + "-" + n.name
		kubectl(t, "create", "clusterrolebinding", name, "--clusterrole="+role, "--user=system:node:"+n.name)
		t.Cleanup(func() { kubectl(t, "delete", "clusterrolebinding", name) })
	}
}

// holds is a pod that writes a mark into its claim once, and counts its starts.
func holds(claim string) string {
	return fmt.Sprintf(`{containers: [{name: c, image: base, command: [sh, -c, "echo start >> /data/starts; exec sleep 1000"],
  volumeMounts: [{name: data, mountPath: /data}]}], volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]}`, claim)
}

func volumes(t *testing.T) (names []string) {
	t.Helper()
	for _, n := range site.nodes {
		l, err := n.caisson.ListVolumes(context.Background(), &caissonv1.ListVolumesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range l.Volumes {
			if strings.HasPrefix(v.Name, "pvc-") {
				names = append(names, n.name+"/"+v.Name)
			}
		}
	}
	return names
}

// must applies a manifest.
func must(t *testing.T, text string) {
	t.Helper()
	if r := try(text, "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("apply: %s", r.errs)
	}
}

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {storageClassName: caisson, accessModes: [%s], resources: {requests: {storage: 64Mi}}}
`

// TestClaim follows one claim from an unserved one to its end.
func TestClaim(t *testing.T) {
	if err := until("a node says that it may not", func() error {
		out := kubectl(t, "get", "events", "-A", "--field-selector=reason=ProvisioningForbidden", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "bind the ClusterRole caisson-volumes") {
			return fmt.Errorf("%q", out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	permitted(t, "caisson-volumes")
	must(t, fmt.Sprintf(claim, "kept", "ReadWriteOnce"))
	t.Cleanup(func() { kubectl(t, "delete", "pvc", "kept", "--ignore-not-found") })
	apply(t, "first", holds("kept"))
	if err := until("the pod runs", func() error {
		if got := kubectl(t, "get", "pod", "first", "-o", "jsonpath={.status.phase}"); got != "Running" {
			return fmt.Errorf("%s: %s", got, kubectl(t, "describe", "pvc", "kept"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	where := kubectl(t, "get", "pod", "first", "-o", "jsonpath={.spec.nodeName}")
	if v := volumes(t); len(v) != 1 || !strings.HasPrefix(v[0], where+"/") {
		t.Fatalf("the volumes are %q, the pod is on %s", v, where)
	}
	kubectl(t, "delete", "pod", "first", "--grace-period=1")
	for _, n := range site.nodes {
		if n.name == where {
			if err := n.program.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := n.program.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	apply(t, "second", holds("kept")) // where the volume is
	phase(t, "second", "Running")
	equal(t, "the node", kubectl(t, "get", "pod", "second", "-o", "jsonpath={.spec.nodeName}"), where)
	equal(t, "the file", kubectl(t, "exec", "second", "--", "cat", "/data/starts"), "start\nstart\n")
	kubectl(t, "delete", "pod", "second", "--grace-period=1")
	kubectl(t, "delete", "pvc", "kept")
	if err := until("the volume is gone", func() error {
		left := kubectl(t, "get", "pv", "-o", "name")
		if v := volumes(t); len(v) > 0 || left != "" {
			return fmt.Errorf("%q, %q", v, left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestClaimTemplates: a pod of a StatefulSet that is deleted comes back with its files.
func TestClaimTemplates(t *testing.T) {
	permitted(t, "caisson-volumes")
	must(t, `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  serviceName: set
  selector: {matchLabels: {of: set}}
  template: {metadata: {labels: {of: set}}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: base,
    command: [sh, -c, "echo start >> /data/starts; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: caisson, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}]
`)
	t.Cleanup(func() {
		kubectl(t, "delete", "statefulset", "set")
		kubectl(t, "delete", "pvc", "data-set-0")
		if err := until("the volume is gone", func() error {
			if v := volumes(t); len(v) > 0 {
				return fmt.Errorf("%q", v)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	running := func() error {
		if r := try("", "get", "pod", "set-0", "-o", "jsonpath={.status.phase}"); r.out != "Running" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}
	if err := until("it runs", running); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "delete", "pod", "set-0")
	if err := until("it runs again", running); err != nil {
		t.Fatal(err)
	}
	equal(t, "the file", kubectl(t, "exec", "set-0", "--", "cat", "/data/starts"), "start\nstart\n")
}

// TestClaimRefused: a claim that one node alone cannot serve has an event that says why.
func TestClaimRefused(t *testing.T) {
	permitted(t, "caisson-volumes")
	must(t, fmt.Sprintf(claim, "shared", "ReadWriteMany"))
	t.Cleanup(func() { kubectl(t, "delete", "pvc", "shared") })
	apply(t, "sharing", holds("shared"))
	if err := until("an event", func() error {
		out := kubectl(t, "get", "events", "--field-selector=involvedObject.name=shared", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "ReadWriteMany: a volume is of one node") {
			return fmt.Errorf("%q", out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// foreign is a PersistentVolume by which a node would reach another one's files.
const foreign = `apiVersion: v1
kind: PersistentVolume
metadata: {name: foreign}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  %s
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
`

// TestNodesWriteTheirOwnVolumes: the policy of the manifest keeps a node from others' volumes.
func TestNodesWriteTheirOwnVolumes(t *testing.T) {
	permitted(t, "caisson-volumes")
	const csi = "csi: {driver: volume.caisson.run, volumeHandle: x}"
	own, other := site.nodes[0].name, site.nodes[1].name
	as := func(name, verb, text string) result {
		return try(text, "--kubeconfig", site.kubeconfig(name), verb, "-f", "-")
	}
	for what, text := range map[string]string{
		"a path of the host": fmt.Sprintf(foreign, "hostPath: {path: /etc}", own),
		"another driver":     fmt.Sprintf(foreign, "csi: {driver: other.example, volumeHandle: x}", own),
		"another node":       fmt.Sprintf(foreign, csi, other),
		"two nodes":          fmt.Sprintf(foreign, csi, own+", "+other),
	} {
		if err := until(what+" is denied", func() error { // the policy counts some time after it was applied
			r := as(own, "create", text)
			if r.code == 0 {
				kubectl(t, "delete", "pv", "foreign")
			}
			if r.code == 0 || !strings.Contains(r.errs, "writes only PersistentVolumes") {
				return fmt.Errorf("%+v", r)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if r := as("admin", "create", text); r.code != 0 {
			t.Errorf("%s: an administrator may not: %s", what, r.errs)
		}
		if r := as(own, "delete", text); r.code == 0 {
			t.Errorf("%s: the node has deleted it", what)
		}
		kubectl(t, "delete", "pv", "foreign", "--ignore-not-found")
	}
	text := fmt.Sprintf(foreign, csi, own)
	if r := as(own, "create", text); r.code != 0 {
		t.Errorf("its own: %s", r.errs)
	}
	kubectl(t, "delete", "pv", "foreign", "--ignore-not-found")
}
