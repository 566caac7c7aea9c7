package pod

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/node/policy"
)

// Labels of a pod's sandboxes. They are all that the node keeps of a pod.
const (
	LabelNode      = "k8s-node"
	LabelNamespace = "k8s-namespace"
	LabelPod       = "k8s-pod"
	LabelUID       = "k8s-uid"
	LabelContainer = "k8s-container"
	LabelTry       = "k8s-try"     // restarts of the container so far
	LabelBackoff   = "k8s-backoff" // restarts that count for the next back-off
	LabelIP        = "k8s-ip"      // of the pod; absent: it has none
)

// Facts are what a request depends on beside the pod.
type Facts struct {
	Node, HostIP, PodIP string
	ConfigMaps          map[string]*corev1.ConfigMap
	Secrets             map[string]*corev1.Secret
	Tokens              map[Token]string
	Claims              map[string]string // volumes of caisson, by the names of claims
	Files               string            // directory of the host with the files of the pod's volumes
	Entrypoint, Cmd     []string          // of the container's image
	Try, Backoff        int
	Ingress             policy.Ingress // who may connect to the pod's address
}

// Containers returns the init containers in their order, then the container.
func Containers(p *corev1.Pod) []corev1.Container {
	return append(slices.Clone(p.Spec.InitContainers), p.Spec.Containers...)
}

// Request is the run of one container of a pod. Its error is about a ConfigMap or Secret that is
// absent.
func Request(p *corev1.Pod, c corev1.Container, offer Offer, f Facts) (*caissonv1.RunSpec, error) {
	env, err := environment(p, c, f)
	if err != nil {
		return nil, err
	}
	s := &caissonv1.SandboxSpec{
		Name:     SandboxName(p, c.Name, f.Try),
		Image:    c.Image,
		User:     user(p, c),
		Env:      env,
		Labels:   labels(p, c, f),
		Ttl:      durationpb.New(0),
		Hostname: p.Spec.Hostname,
		Limits:   &caissonv1.Limits{},
	}
	offer.apply(p, s)
	setRoot(c, s)
	setLimits(c, s.Limits)
	setMounts(p, c, f, s)
	setRuntime(p, c, s)
	s.Publish = Publish(c, s.Labels[LabelRuntime], f.PodIP, f.Ingress)
	return &caissonv1.RunSpec{Sandbox: s, Exec: command(c, f, env), Detach: true}, nil
}

// SandboxName is unique for each start of a container. Identity is the pod's UID, never its name.
func SandboxName(p *corev1.Pod, container string, try int) string {
	at := slices.IndexFunc(Containers(p), func(c corev1.Container) bool { return c.Name == container })
	return fmt.Sprintf("%s-%d-%d", p.UID, at, try)
}

func labels(p *corev1.Pod, c corev1.Container, f Facts) map[string]string {
	m := map[string]string{
		LabelNode: f.Node, LabelNamespace: p.Namespace, LabelPod: p.Name, LabelUID: string(p.UID),
		LabelContainer: c.Name, LabelTry: strconv.Itoa(f.Try), LabelBackoff: strconv.Itoa(f.Backoff),
	}
	if f.PodIP != "" {
		m[LabelIP] = f.PodIP
	}
	return m
}

// command joins what the image and the container say, as Kubernetes does.
func command(c corev1.Container, f Facts, env map[string]string) *caissonv1.ExecSpec {
	entry, args := f.Entrypoint, f.Cmd
	if len(c.Command) > 0 {
		entry, args = expandAll(c.Command, env), nil
	}
	if len(c.Args) > 0 {
		args = expandAll(c.Args, env)
	}
	e := &caissonv1.ExecSpec{Args: slices.Concat(entry, args), Workdir: c.WorkingDir, Stdin: c.Stdin}
	if c.TTY {
		e.Tty = &caissonv1.WinSize{Rows: 24, Cols: 80}
	}
	return e
}

func user(p *corev1.Pod, c corev1.Container) string {
	uid, gid := ids(p, c)
	switch {
	case uid == nil:
		return ""
	case gid == nil:
		return strconv.FormatInt(*uid, 10)
	}
	return fmt.Sprintf("%d:%d", *uid, *gid)
}

// ids are those that c asks to run with; nil is the image's.
func ids(p *corev1.Pod, c corev1.Container) (uid, gid *int64) {
	if s := p.Spec.SecurityContext; s != nil {
		uid, gid = s.RunAsUser, s.RunAsGroup
	}
	if s := c.SecurityContext; s != nil {
		uid, gid = cmp.Or(s.RunAsUser, uid), cmp.Or(s.RunAsGroup, gid)
	}
	return uid, gid
}

// setRoot makes the root writable only where the container says so: by default that is for the
// profile to say.
func setRoot(c corev1.Container, s *caissonv1.SandboxSpec) {
	if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil {
		return
	}
	s.Rootfs = "rw"
	if *c.SecurityContext.ReadOnlyRootFilesystem {
		s.Rootfs = "ro"
	}
}

// Weights that caisson takes, and those of one CPU.
const (
	leastShares = 2
	mostShares  = 262144
	cpuShares   = 1024
)

func setLimits(c corev1.Container, l *caissonv1.Limits) {
	if memory := Memory(c); memory > 0 {
		l.MemoryBytes = &memory
	}
	if q, ok := c.Resources.Limits[corev1.ResourceCPU]; ok {
		milli := q.MilliValue()
		l.MilliCpu = &milli
	}
	if q, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		shares := min(max(q.MilliValue()*cpuShares/1000, leastShares), mostShares)
		l.CpuShares = &shares
	}
	if size := storage(c); size > 0 && !readOnly(c) {
		l.DiskBytes = &size
	}
}

// storage is what a container may write outside of volumes with a size of their own; 0 is no bound.
func storage(c corev1.Container) int64 {
	q := c.Resources.Limits[corev1.ResourceEphemeralStorage]
	return q.Value()
}

// readOnly says that a container has no root to write to.
func readOnly(c corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem
}

// Memory is the most that a container gets: its limit, else its request; 0 is the profile's.
func Memory(c corev1.Container) int64 {
	if q, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
		return q.Value()
	}
	q := c.Resources.Requests[corev1.ResourceMemory]
	return q.Value()
}

// smallestVolume is the least size of a volume that has one.
const smallestVolume = 16 << 20

// Volume is a volume of caisson that a pod needs; Size 0 is the daemon's default.
type Volume struct {
	Name string
	Size int64
}

// VolumeSize is the size of a volume that is to hold so many bytes.
func VolumeSize(asked int64) int64 { return max(asked, smallestVolume) }

// VolumesPrefix begins the names of all volumes of a pod.
func VolumesPrefix(uid string) string { return uid + "." }

// Volumes are made before the pod starts and go with it.
func Volumes(p *corev1.Pod) []Volume {
	var volumes []Volume
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.Medium == corev1.StorageMediumMemory {
			continue
		}
		volume := Volume{Name: VolumesPrefix(string(p.UID)) + v.Name}
		size := value(v.EmptyDir.SizeLimit)
		for _, c := range p.Spec.Containers {
			if size == 0 {
				size = storage(c)
			}
		}
		if size > 0 {
			volume.Size = VolumeSize(size)
		}
		volumes = append(volumes, volume)
	}
	if ownWorkspace(p) {
		volumes = append(volumes, Volume{Name: workspaceVolume(p)})
	}
	return volumes
}

func value(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

const shm = "/dev/shm"

func setMounts(p *corev1.Pod, c corev1.Container, f Facts, s *caissonv1.SandboxSpec) {
	for _, m := range c.VolumeMounts {
		at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if at < 0 || apiAccess(p.Spec.Volumes[at]) {
			continue
		}
		v := p.Spec.Volumes[at]
		mount := &caissonv1.Mount{Target: m.MountPath, ReadOnly: m.ReadOnly}
		switch {
		case v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory:
			size := value(v.EmptyDir.SizeLimit)
			if m.MountPath == shm {
				if size > 0 {
					s.Limits.ShmBytes = &size
				}
				continue
			}
			mount.Type, mount.ReadOnly = "tmpfs", false
			if size > 0 {
				mount.SizeBytes = &size
			}
		case v.EmptyDir != nil:
			mount.Type, mount.Source = "volume", VolumesPrefix(string(p.UID))+v.Name
		case v.PersistentVolumeClaim != nil:
			mount.Type, mount.Source = "volume", f.Claims[v.PersistentVolumeClaim.ClaimName]
			mount.ReadOnly = m.ReadOnly || v.PersistentVolumeClaim.ReadOnly
		default:
			mount.Type, mount.Source, mount.ReadOnly = "bind", f.Files+"/"+v.Name, true
		}
		s.Mounts = append(s.Mounts, mount)
	}
}
