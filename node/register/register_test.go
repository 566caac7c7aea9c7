package register

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// daemon answers what a test says.
type daemon struct {
	away   error
	ping   *caissonv1.PingResponse
	doctor *caissonv1.DoctorResponse
}

func (d *daemon) Ping(context.Context) (*caissonv1.PingResponse, error) { return d.ping, d.away }

func (d *daemon) Info(context.Context) (*caissonv1.InfoResponse, error) {
	return &caissonv1.InfoResponse{Capacity: &caissonv1.Resources{MilliCpu: 4000, MemoryBytes: 8 << 30, Sandboxes: 100, DiskBytes: 50 << 30}}, d.away
}

func (d *daemon) Version(context.Context, *caissonv1.VersionRequest) (*caissonv1.VersionResponse, error) {
	return &caissonv1.VersionResponse{Version: "1.2.3"}, d.away
}

func (d *daemon) Doctor(context.Context, *caissonv1.DoctorRequest) (*caissonv1.DoctorResponse, error) {
	return d.doctor, d.away
}

func registration(d *daemon, objects ...runtime.Object) *Registration {
	return New(Config{
		Node: "n", Address: "192.0.2.1", Port: 10250, PodCIDR: "10.0.0.0/24", Machine: "m", Instance: "i", MaxPods: 30,
		Client: fake.NewClientset(objects...), Caisson: d, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func healthy() *daemon {
	return &daemon{ping: &caissonv1.PingResponse{Ready: true}, doctor: &caissonv1.DoctorResponse{Ok: true}}
}

// told registers a node once, and returns what the API server has of it.
func told(t *testing.T, r *Registration) *corev1.Node {
	t.Helper()
	if err := r.tell(t.Context(), r.node(t.Context())); err != nil {
		t.Fatal(err)
	}
	n, err := r.Client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func conditionOf(t *testing.T, n *corev1.Node, of corev1.NodeConditionType) corev1.NodeCondition {
	t.Helper()
	for _, c := range n.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	t.Fatalf("no condition %s in %+v", of, n.Status.Conditions)
	return corev1.NodeCondition{}
}

func TestNode(t *testing.T) {
	n := told(t, registration(healthy()))
	if have := n.Status.Allocatable; have.Cpu().MilliValue() != 4000 || have.Memory().Value() != 8<<30 || have.Pods().Value() != 30 || have.StorageEphemeral().Value() != 50<<30 {
		t.Errorf("allocatable is %v", have)
	}
	if n.Spec.PodCIDR != "10.0.0.0/24" || n.Status.NodeInfo.MachineID != "m" || n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("the node is %+v", n)
	}
	if c := conditionOf(t, n, corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("it is %+v", c)
	}
}

func TestOperatorsSpecStays(t *testing.T) {
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"mine": "yes"}}, Spec: corev1.NodeSpec{Unschedulable: true}}
	if n := told(t, registration(healthy(), old)); !n.Spec.Unschedulable || n.Labels["mine"] != "yes" {
		t.Errorf("the node is %+v", n)
	}
}

func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*daemon)
		of     corev1.NodeConditionType
		status corev1.ConditionStatus
		reason string
	}{
		"away":      {func(d *daemon) { d.away = errors.New("SBX-802") }, corev1.NodeReady, corev1.ConditionFalse, "CaissonAway"},
		"not ready": {func(d *daemon) { d.ping = &caissonv1.PingResponse{Reason: "it ends"} }, corev1.NodeReady, corev1.ConditionFalse, "CaissonNotReady"},
		"doctor": {func(d *daemon) {
			d.doctor = &caissonv1.DoctorResponse{Checks: []*caissonv1.DoctorCheck{{Name: "cgroups", Code: "SBX-301", Detail: "none"}}}
		}, "CaissonDoctor", corev1.ConditionFalse, "DoctorFailed"},
		"well": {func(*daemon) {}, "CaissonDoctor", corev1.ConditionTrue, "DoctorPassed"},
	} {
		d := healthy()
		c.change(d)
		if got := conditionOf(t, told(t, registration(d)), c.of); got.Status != c.status || got.Reason != c.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestLease(t *testing.T) {
	r := registration(healthy())
	for range 2 { // made, then renewed
		before := time.Now()
		if err := r.renewOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := r.Client.CoordinationV1().Leases(leases).Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime.Time.Before(before.Truncate(time.Microsecond)) || *l.Spec.HolderIdentity != "n" {
			t.Errorf("the lease is %+v, %v", l, err)
		}
	}
}

// TestNameThatIsTaken: the control is the same node with a lease that is over, and one of this machine.
func TestNameThatIsTaken(t *testing.T) {
	for _, c := range []struct {
		machine, instance string
		age               time.Duration
		taken             bool
	}{{"other", "i", 0, true}, {"m", "other", 0, true}, {"other", "i", time.Minute, false}, {"m", "i", 0, false}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		node.Status.NodeInfo.MachineID, node.Status.NodeInfo.SystemUUID = c.machine, c.instance
		renewed := metav1.NewMicroTime(time.Now().Add(-c.age))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: leases}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
		var taken *Taken
		if err := registration(healthy(), node, lease).Claim(t.Context()); errors.As(err, &taken) != c.taken {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestClaimWaitsForTheAPIServer(t *testing.T) {
	r := registration(healthy())
	asked := 0
	r.Client.(*fake.Clientset).PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		asked++
		return asked == 1, nil, errors.New("away")
	})
	if err := r.Claim(t.Context()); err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
