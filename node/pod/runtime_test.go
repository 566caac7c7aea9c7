package pod

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-run/caisson/node/policy"
)

func withRuntime(runtime string, change func(*corev1.Pod)) *corev1.Pod {
	p := example()
	p.Annotations = map[string]string{"caisson.run/runtime": runtime}
	p.Spec.Containers[0].Ports = nil
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "base"}}
	change(p)
	return p
}

var secretFacts = Facts{Secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v"), "SANDBOX_A": []byte("v")}}}}

func TestRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		dir    string
		volume bool
	}{
		"nothing":        {func(*corev1.Pod) {}, "/workspace", true},
		"a directory":    {func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/app/" }, "/app", false},
		"its volume":     {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/workspace/" }, "/workspace", false},
		"a volume below": {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/workspace/a" }, "/workspace", false},
		"another":        {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/workspaces" }, "/workspace", true},
	} {
		p := withRuntime("python", c.change)
		if refusals := Check(p, Offer{}); len(refusals) > 0 {
			t.Fatalf("%s: refused: %s", name, Text(refusals))
		}
		r, err := Request(p, p.Spec.Containers[0], Offer{}, secretFacts)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Sandbox
		if s.Labels[LabelRuntime] != "python" || s.Labels[LabelDir] != c.dir {
			t.Errorf("%s: the labels are %v", name, s.Labels)
		}
		has := len(s.Mounts) == 3 && s.Mounts[2].Source == "u._workspace" && s.Mounts[2].Target == "/workspace"
		made := slices.ContainsFunc(Volumes(p), func(v Volume) bool { return v.Name == "u._workspace" })
		if has != c.volume || made != c.volume {
			t.Errorf("%s: the mounts are %v, the volumes %v", name, s.Mounts, Volumes(p))
		}
		if i, err := Request(p, p.Spec.InitContainers[0], Offer{}, secretFacts); err != nil || i.Sandbox.Labels[LabelRuntime] != "" || len(i.Sandbox.Mounts) > 0 {
			t.Errorf("%s: the init container is %v, %v", name, i, err)
		}
	}
}

// TestRuntimePorts: a manifest has the ports of the runtime's own image, too.
func TestRuntimePorts(t *testing.T) {
	p := withRuntime("sandboxd", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8888}, {ContainerPort: 9090}, {ContainerPort: 8080}}
	})
	if r := Check(p, Offer{}); len(r) > 0 {
		t.Fatalf("refused: %s", Text(r))
	}
	f := secretFacts
	f.PodIP, f.Ingress = "192.0.2.7", policy.All()
	r, err := Request(p, p.Spec.Containers[0], Offer{}, f)
	if err != nil || !slices.Equal(r.Sandbox.Publish, []string{"192.0.2.7:8888:8888"}) || len(p.Spec.Containers[0].Ports) != 3 {
		t.Errorf("it publishes %v, %v", r.GetSandbox().GetPublish(), err)
	}
	if ports := Ports(p); !slices.Equal(ports, []uint16{8080, 8888, 9090}) {
		t.Errorf("it is reached at %v", ports)
	}
}

func TestRuntimeRefusals(t *testing.T) {
	for field, p := range map[string]*corev1.Pod{
		"spec.containers[0].workingDir": withRuntime("python", func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "app" }),
	} {
		if r := Check(p, Offer{}); len(r) != 1 || r[0].Field != field {
			t.Errorf("%s: refused is %q", field, Text(r))
		}
	}
}

// TestTold: a runtime tells no value of a Secret.
func TestTold(t *testing.T) {
	p := withRuntime("sandboxd", func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: "SANDBOX_ID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}})
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	})
	all, err := environment(p, p.Spec.Containers[0], secretFacts)
	if err != nil || all["A"] != "v" || all["SANDBOX_A"] != "v" {
		t.Fatalf("the environment is %v, %v", all, err)
	}
	if told, err := Told(p, secretFacts); err != nil || !maps.Equal(told, map[string]string{"SANDBOX_ID": "p"}) {
		t.Errorf("told is %v, %v", told, err)
	}
	if len(p.Spec.Containers[0].Env) != 2 || len(p.Spec.Containers[0].EnvFrom) != 1 {
		t.Error("the pod has changed")
	}
}
