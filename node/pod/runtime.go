package pod

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/agentsandbox"
	"github.com/caisson-run/caisson/node/policy"
)

// Labels of a sandbox that the node answers for as a runtime of agent-sandbox.
const (
	LabelRuntime = "k8s-runtime"
	LabelDir     = "k8s-runtime-dir" // the base directory
)

const workspace = "/workspace"

// runtimeDir is the base directory of a runtime: the container's own, where it names one.
func runtimeDir(p *corev1.Pod) string {
	if dir := p.Spec.Containers[0].WorkingDir; dir != "" {
		return path.Clean(dir)
	}
	return workspace
}

// ownWorkspace says that a pod has nothing where its runtime needs a directory.
func ownWorkspace(p *corev1.Pod) bool {
	c := p.Spec.Containers[0]
	return p.Annotations[annotationRuntime] != "" && c.WorkingDir == "" &&
		!slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			at := path.Clean(m.MountPath)
			return at == workspace || strings.HasPrefix(at, workspace+"/")
		})
}

// workspaceVolume is no name of a volume in a manifest, which has no _.
func workspaceVolume(p *corev1.Pod) string { return VolumesPrefix(string(p.UID)) + "_workspace" }

// setRuntime makes the pod's container one that the node answers for.
func setRuntime(p *corev1.Pod, c corev1.Container, s *caissonv1.SandboxSpec) {
	runtime := p.Annotations[annotationRuntime]
	if runtime == "" || c.Name != p.Spec.Containers[0].Name {
		return
	}
	s.Labels[LabelRuntime], s.Labels[LabelDir] = runtime, runtimeDir(p)
	if ownWorkspace(p) {
		s.Mounts = append(s.Mounts, &caissonv1.Mount{Type: "volume", Source: workspaceVolume(p), Target: workspace})
	}
}

// Publish is what a container's sandbox publishes at the pod's address, if it has one. At the ports
// of a runtime the node answers itself, as a manifest for the runtime's own image has them, too.
func Publish(c corev1.Container, runtime, address string, in policy.Ingress) (texts []string) {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return nil
	}
	for _, port := range c.Ports {
		if n := uint16(port.ContainerPort); !slices.Contains(agentsandbox.Ports(runtime), n) {
			texts = append(texts, in.Access(n).Publish(at, n, n))
		}
	}
	return texts
}

// Ports are those at which a pod is reached at its address.
func Ports(p *corev1.Pod) []uint16 {
	ports := agentsandbox.Ports(p.Annotations[annotationRuntime])
	for _, c := range Containers(p) {
		for _, port := range c.Ports {
			ports = append(ports, uint16(port.ContainerPort))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// checkRuntime refuses a base directory that is none.
func checkRuntime(p *corev1.Pod) []Refusal {
	if p.Annotations[annotationRuntime] == "" || len(p.Spec.Containers) == 0 {
		return nil
	}
	if !path.IsAbs(runtimeDir(p)) {
		return []Refusal{{Field: "spec.containers[0].workingDir", Why: "the base directory of a runtime is absolute"}}
	}
	return nil
}

// Told is the environment of the container without values of Secrets.
func Told(p *corev1.Pod, f Facts) (map[string]string, error) {
	c := p.Spec.Containers[0].DeepCopy()
	c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil })
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil })
	return environment(p, *c, f)
}
