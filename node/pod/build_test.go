package pod

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-run/caisson/node/policy"
)

func example() *corev1.Pod {
	uid, rootOnly := int64(1234), true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: &uid, RunAsGroup: &uid},
			Volumes: []corev1.Volume{
				{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: "base", Args: []string{"$(A)", "$$(A)", "$(B)"},
				Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}},
				SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: &rootOnly},
				Resources: corev1.ResourceRequirements{
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("500m")},
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
				},
				Ports:        []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				VolumeMounts: []corev1.VolumeMount{{Name: "e", MountPath: "/e"}, {Name: "s", MountPath: "/s"}},
			}},
		},
	}
}

func TestRequest(t *testing.T) {
	p := example()
	if refusals := Check(p, Offer{}); len(refusals) > 0 {
		t.Fatalf("refused: %s", Text(refusals))
	}
	f := Facts{Node: "n", PodIP: "10.0.0.1", Ingress: policy.All(), Files: "/files", Entrypoint: []string{"run"}, Cmd: []string{"nothing"},
		Secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v")}}}}
	r, err := Request(p, p.Spec.Containers[0], Offer{Profile: "dev"}, f)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"run", "v", "$(A)", "$(B)"}; !slices.Equal(r.Exec.Args, want) {
		t.Errorf("args %q, not %q", r.Exec.Args, want)
	}
	s := r.Sandbox
	if s.Name != "u-0-0" || s.User != "1234:1234" || s.Rootfs != "ro" || s.Profile != "dev" || s.Labels[LabelIP] != "10.0.0.1" {
		t.Errorf("the sandbox is %v", s)
	}
	if l := s.Limits; *l.MemoryBytes != 64<<20 || *l.MilliCpu != 500 || *l.CpuShares != 256 {
		t.Errorf("the limits are %v", l)
	}
	if len(s.Mounts) != 2 || s.Mounts[0].Source != "u.e" || s.Mounts[1].Source != "/files/s" || !s.Mounts[1].ReadOnly {
		t.Errorf("the mounts are %v", s.Mounts)
	}
	if !slices.Equal(s.Publish, []string{"10.0.0.1:8080:8080"}) {
		t.Errorf("published are %q", s.Publish)
	}
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1:8080:8080@0.0.0.0/32", "fd00::1": "[fd00::1]:8080:8080@::/128"} {
		f.PodIP, f.Ingress = address, policy.Ingress{}
		r, err := Request(p, p.Spec.Containers[0], Offer{}, f)
		if err != nil || !slices.Equal(r.Sandbox.Publish, []string{want}) {
			t.Errorf("for nobody are published %v, %v", r, err)
		}
	}
}

func TestStorage(t *testing.T) {
	p := example()
	c := &p.Spec.Containers[0]
	c.Resources.Limits[corev1.ResourceEphemeralStorage] = resource.MustParse("64Mi")
	f := Facts{Secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v")}}}}
	for _, writable := range []bool{false, true} {
		readOnly := !writable
		c.SecurityContext.ReadOnlyRootFilesystem = &readOnly
		r, err := Request(p, *c, Offer{}, f)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Sandbox.Limits.GetDiskBytes(); got != map[bool]int64{true: 64 << 20}[writable] {
			t.Errorf("writable %t: a disk of %d", writable, got)
		}
	}
	if v := Volumes(p); len(v) != 1 || v[0].Size != 64<<20 {
		t.Errorf("the volumes are %v", v)
	}
}

func TestMissingSecret(t *testing.T) {
	p := example()
	var missing *Missing
	if _, err := Request(p, p.Spec.Containers[0], Offer{}, Facts{}); !errors.As(err, &missing) {
		t.Errorf("Request = %v", err)
	}
	if _, err := Files(p, Facts{}); !errors.As(err, &missing) {
		t.Errorf("Files = %v", err)
	}
}

// TestRefusals begins with a pod that is not refused, and changes one thing at a time.
func TestRefusals(t *testing.T) {
	yes, root := true, int64(0)
	for field, change := range map[string]func(*corev1.Pod){
		"spec.hostPID":                                  func(p *corev1.Pod) { p.Spec.HostPID = true },
		"spec.containers":                               func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{}) },
		"spec.securityContext.runAsUser":                func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = &root },
		"spec.containers[0].securityContext.runAsGroup": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = nil },
		"spec.containers[0].securityContext.privileged": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = &yes },
		"spec.containers[0].ports[0].protocol":          func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = "UDP" },
		"spec.containers[0].ports[0].containerPort":     func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 53 },
		"spec.containers[0].volumeMounts[1].subPath":    func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[1].SubPath = "x" },
		"spec.volumes[0].hostPath":                      func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/"} },
		"metadata.annotations[caisson.run/allow]":       func(p *corev1.Pod) { p.Annotations = map[string]string{"caisson.run/allow": "example.com"} },
		"metadata.annotations[caisson.run/runtime]":     func(p *corev1.Pod) { p.Annotations = map[string]string{"caisson.run/runtime": "ruby"} },
		"metadata.annotations[caisson.run/nothing]":     func(p *corev1.Pod) { p.Annotations = map[string]string{"caisson.run/nothing": ""} },
		"spec.containers[0].securityContext.capabilities.add": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
		},
	} {
		p := example()
		change(p)
		if r := Check(p, Offer{}); len(r) != 1 || r[0].Field != field {
			t.Errorf("%s: refused is %q", field, Text(r))
		}
	}
}
