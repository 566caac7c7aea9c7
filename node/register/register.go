// Package register keeps the Node object and its lease: what the host has, and whether the daemon
// can run something now.
package register

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Caisson is what is asked of the daemon.
type Caisson interface {
	Ping(context.Context) (*caissonv1.PingResponse, error)
	Info(context.Context) (*caissonv1.InfoResponse, error)
	Version(context.Context, *caissonv1.VersionRequest) (*caissonv1.VersionResponse, error)
	Doctor(context.Context, *caissonv1.DoctorRequest) (*caissonv1.DoctorResponse, error)
}

// Config says what node this is.
type Config struct {
	Node, Address, PodCIDR string
	Machine, Instance      string // tell the machine and its daemon from others
	Port                   int32
	Client                 kubernetes.Interface
	Caisson                Caisson
	MaxPods                int64 // 0: as many as sandboxes
	Log                    *slog.Logger
}

// Registration keeps one node registered.
type Registration struct {
	Config
	mu       sync.Mutex
	capacity corev1.ResourceList
	checked  time.Time // when doctor was asked
	doctor   corev1.NodeCondition
	version  string
}

// The times of the kubelet.
const (
	every       = 2 * time.Second // look at the daemon
	tellEvery   = 5 * time.Minute // where nothing changed
	leaseEvery  = 10 * time.Second
	leaseFor    = 40 // seconds
	doctorEvery = 10 * time.Minute
	leases      = "kube-node-lease"
)

// New returns a Registration that does nothing until Run.
func New(c Config) *Registration {
	return &Registration{Config: c, capacity: corev1.ResourceList{}}
}

// Allocatable is what pods may ask for all together.
func (r *Registration) Allocatable() corev1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.capacity.DeepCopy()
}

// Run registers the node and tells its status until ctx ends.
func (r *Registration) Run(ctx context.Context) {
	go r.renew(ctx)
	var told time.Time
	var last string
	for ctx.Err() == nil {
		node := r.node(ctx)
		key := summary(node)
		if key != last || time.Since(told) > tellEvery {
			if err := r.tell(ctx, node); err != nil {
				r.Log.Warn("node status", "error", err)
			} else {
				last, told = key, time.Now()
			}
		}
		sleep(ctx, every)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// summary is what of a node is worth a message.
func summary(n *corev1.Node) string {
	s := ""
	for _, c := range n.Status.Conditions {
		s += string(c.Type) + string(c.Status) + c.Reason + c.Message
	}
	b, err := json.Marshal(n.Status.Capacity)
	if err != nil {
		return s
	}
	return s + string(b)
}

// Learn asks the daemon for the host's capacity.
func (r *Registration) Learn(ctx context.Context) error {
	i, err := r.Caisson.Info(ctx)
	if err != nil {
		return err
	}
	v, err := r.Caisson.Version(ctx, &caissonv1.VersionRequest{})
	if err != nil {
		return err
	}
	c := i.GetCapacity()
	pods := c.GetSandboxes()
	if r.MaxPods > 0 {
		pods = min(pods, r.MaxPods)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = v.Version
	r.capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(c.GetMilliCpu(), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(c.GetMemoryBytes(), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(c.GetDiskBytes(), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
	}
	return nil
}

func (r *Registration) node(ctx context.Context) *corev1.Node {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ready := condition(corev1.NodeReady, corev1.ConditionTrue, "CaissonReady", "the daemon runs sandboxes")
	if ping, err := r.Caisson.Ping(ctx); err != nil {
		ready = condition(corev1.NodeReady, corev1.ConditionFalse, "CaissonAway", err.Error())
	} else if !ping.Ready {
		ready = condition(corev1.NodeReady, corev1.ConditionFalse, "CaissonNotReady", ping.Reason)
	} else if err := r.Learn(ctx); err != nil {
		ready = condition(corev1.NodeReady, corev1.ConditionFalse, "CaissonAway", err.Error())
	}
	conditions := []corev1.NodeCondition{
		ready,
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "CaissonLimits", "each sandbox has a limit of its own"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "CaissonLimits", "each sandbox has a disk of its own"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "CaissonLimits", "each sandbox has a limit of its own"),
	}
	if ready.Status == corev1.ConditionTrue {
		conditions = append(conditions, r.examined(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Node, Labels: map[string]string{
		corev1.LabelHostname: r.Node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"node.kubernetes.io/instance-type": "caisson",
	}}}
	n.Status = corev1.NodeStatus{
		Capacity: r.capacity.DeepCopy(), Allocatable: r.capacity.DeepCopy(), Conditions: conditions,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: r.Address}, {Type: corev1.NodeHostName, Address: r.Node}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: r.Port}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: r.Machine, SystemUUID: r.Instance,
			OperatingSystem: "linux", Architecture: runtime.GOARCH, KubeletVersion: "v1.37.2-caisson",
			ContainerRuntimeVersion: "caisson://" + r.version,
		},
	}
	return n
}

func condition(of corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: of, Status: status, Reason: reason, Message: message}
}

// examined is what doctor says. It is asked rarely: it looks at the whole host.
func (r *Registration) examined(ctx context.Context) corev1.NodeCondition {
	r.mu.Lock()
	known := r.doctor
	fresh := time.Since(r.checked) < doctorEvery
	r.mu.Unlock()
	if fresh {
		return known
	}
	c := condition("CaissonDoctor", corev1.ConditionTrue, "DoctorPassed", "the host has all that caisson needs")
	d, err := r.Caisson.Doctor(ctx, &caissonv1.DoctorRequest{})
	if err != nil {
		return condition("CaissonDoctor", corev1.ConditionUnknown, "DoctorAway", err.Error())
	}
	for _, check := range d.Checks {
		if !d.Ok && check.Code != "" {
			c = condition("CaissonDoctor", corev1.ConditionFalse, "DoctorFailed", check.Code+" "+check.Name+": "+check.Detail)
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doctor, r.checked = c, time.Now()
	return c
}

// tell writes the status, and makes the node where there is none. Labels, taints and the rest of
// the spec of one that is there are the operator's.
func (r *Registration) tell(ctx context.Context, want *corev1.Node) error {
	nodes := r.Client.CoreV1().Nodes()
	have, err := nodes.Get(ctx, r.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		created := &corev1.Node{ObjectMeta: want.ObjectMeta, Spec: corev1.NodeSpec{PodCIDR: r.PodCIDR}}
		if r.PodCIDR != "" {
			created.Spec.PodCIDRs = []string{r.PodCIDR}
		}
		have, err = nodes.Create(ctx, created, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	for i := range want.Status.Conditions {
		c := &want.Status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		for _, old := range have.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"status": want.Status})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, r.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
