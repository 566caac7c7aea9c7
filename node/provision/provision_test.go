package provision

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/node/pod"
)

// daemon has the sizes of its volumes.
type daemon struct {
	mu      sync.Mutex
	volumes map[string]int64
	err     error
}

func (d *daemon) CreateVolume(_ context.Context, r *caissonv1.CreateVolumeRequest) (*caissonv1.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	d.volumes[r.Name] = r.GetSizeBytes()
	return &caissonv1.Volume{Name: r.Name}, nil
}

func (d *daemon) RemoveVolume(_ context.Context, r *caissonv1.RemoveVolumeRequest) (*caissonv1.RemoveVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	if _, ok := d.volumes[r.Name]; !ok {
		return nil, sbxerr.New(sbxerr.VolumeNotFound, "fake", "no %s", r.Name)
	}
	delete(d.volumes, r.Name)
	return &caissonv1.RemoveVolumeResponse{}, nil
}

func (d *daemon) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.volumes))
}

func (d *daemon) fails(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

type world struct {
	*daemon
	client *fake.Clientset
	events *record.FakeRecorder
}

const volume1 = "pvc-u1"

func newClass(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "caisson"}, Provisioner: pod.Provisioner}
	for _, f := range change {
		f(c)
	}
	return c
}

func newClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "caisson"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "u1", Annotations: map[string]string{
			selectedNode: "n", asksFor[0]: pod.Provisioner}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func run(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{daemon: &daemon{volumes: map[string]int64{}}, client: fake.NewClientset(objects...), events: record.NewFakeRecorder(1000)}
	w.start(t)
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := New(Config{Node: "n", Client: w.client, Caisson: w.daemon, Events: w.events, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// event waits for an event with this text.
func (w *world) event(t *testing.T, want string) {
	t.Helper()
	for limit := time.After(5 * time.Second); ; {
		select {
		case e := <-w.events.Events:
			if strings.Contains(e, want) {
				return
			}
			t.Logf("another event: %s", e)
		case <-limit:
			t.Fatalf("no event %q", want)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 500 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond) // nothing announces what tests wait for
	}
	t.Fatalf("never: %s", what)
}

// pv is the PersistentVolume of newClaim, or nil.
func (w *world) pv(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	v, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), volume1, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return v
}

func TestClaimGetsAVolume(t *testing.T) {
	keep := corev1.PersistentVolumeReclaimRetain
	for _, c := range []struct {
		asked  string
		size   int64
		policy *corev1.PersistentVolumeReclaimPolicy
		want   corev1.PersistentVolumeReclaimPolicy
	}{
		{"64Mi", 64 << 20, nil, corev1.PersistentVolumeReclaimDelete},
		{"1Ki", 16 << 20, &keep, corev1.PersistentVolumeReclaimRetain},
	} {
		w := run(t, newClass(func(s *storagev1.StorageClass) { s.ReclaimPolicy = c.policy }), newClaim(func(p *corev1.PersistentVolumeClaim) {
			p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(c.asked)
		}))
		w.event(t, "ProvisioningSucceeded")
		v := w.pv(t)
		if w.volumes[volume1] != c.size || v.Spec.Capacity.Storage().Value() != c.size || v.Spec.PersistentVolumeReclaimPolicy != c.want {
			t.Errorf("%s: a volume of %d, and %+v", c.asked, w.volumes[volume1], v.Spec)
		}
		if v.Spec.ClaimRef.UID != "u1" || v.Spec.CSI.VolumeHandle != volume1 || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "n" {
			t.Errorf("the PersistentVolume is %+v", v.Spec)
		}
	}
}

// TestKilledBetween: a volume without its PersistentVolume is of an earlier process.
func TestKilledBetween(t *testing.T) {
	w := &world{daemon: &daemon{volumes: map[string]int64{volume1: 64 << 20}}, client: fake.NewClientset(newClass(), newClaim()), events: record.NewFakeRecorder(100)}
	w.start(t)
	eventually(t, "the PersistentVolume", func() bool { return w.pv(t) != nil })
	if !slices.Equal(w.names(), []string{volume1}) {
		t.Errorf("the volumes are %q", w.names())
	}
}

// TestClaimsOfOthers get nothing. The claim that comes last shows that they were looked at.
func TestClaimsOfOthers(t *testing.T) {
	w := run(t, newClass(),
		newClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.UID = "another-node", "u2"
			c.Annotations[selectedNode] = "other"
		}),
		newClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.UID = "another-provisioner", "u3"
			c.Annotations[asksFor[0]] = "example.com/disk"
		}),
		newClaim(func(c *corev1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = "bound", "u4", "v" }),
		newClaim(func(c *corev1.PersistentVolumeClaim) { c.Name = "z" }))
	w.event(t, "ProvisioningSucceeded")
	time.Sleep(100 * time.Millisecond) // the workers are several: one that is late would make another volume
	if !slices.Equal(w.names(), []string{volume1}) {
		t.Errorf("the volumes are %q", w.names())
	}
}

func TestRefusedClaims(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for want, change := range map[string]func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass){
		"spec.accessModes: ReadWriteMany": func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteMany)
		},
		"spec.volumeMode: ": func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) { c.Spec.VolumeMode = &block },
		"spec.selector: ": func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Selector = &metav1.LabelSelector{}
		},
		"spec.dataSource: ": func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		},
		"has parameters": func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass) {
			s.Parameters = map[string]string{"type": "fast"}
		},
		"has mountOptions": func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass) { s.MountOptions = []string{"ro"} },
		"is of example.com/disk": func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass) {
			s.Provisioner = "example.com/disk"
		},
		`"gone" not found`: func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			name := "gone"
			c.Spec.StorageClassName = &name
		},
	} {
		c, s := newClaim(), newClass()
		change(c, s)
		w := run(t, c, s)
		w.event(t, want)
		if len(w.names()) > 0 || w.pv(t) != nil {
			t.Errorf("%s: %q were made", want, w.names())
		}
	}
}

// TestNoRoom tells the daemon's code, and tries again.
func TestNoRoom(t *testing.T) {
	w := &world{daemon: &daemon{volumes: map[string]int64{}}, client: fake.NewClientset(newClass(), newClaim()), events: record.NewFakeRecorder(100)}
	w.fails(sbxerr.New(sbxerr.Disk, "fake", "the disk is full"))
	w.start(t)
	w.event(t, string(sbxerr.Disk))
	if w.pv(t) != nil {
		t.Error("there is a PersistentVolume without a volume")
	}
	w.fails(nil)
	w.event(t, "ProvisioningSucceeded")
}

// released makes newClaim's PersistentVolume one whose claim is gone.
func (w *world) released(t *testing.T, change func(*corev1.PersistentVolume)) {
	t.Helper()
	w.event(t, "ProvisioningSucceeded")
	v := w.pv(t)
	v.Status.Phase = corev1.VolumeReleased
	change(v)
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), v, ""); err != nil {
		t.Fatal(err)
	}
}

func delete1(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func TestDelete(t *testing.T) {
	w := run(t, newClass(), newClaim())
	w.released(t, func(*corev1.PersistentVolume) {})
	eventually(t, "both are gone", func() bool { return len(w.names()) == 0 && w.pv(t) == nil })
}

func TestVolumeInUseStays(t *testing.T) {
	w := run(t, newClass(), newClaim())
	w.event(t, "ProvisioningSucceeded")
	w.events.Events <- "ProvisioningSucceeded"
	w.fails(sbxerr.New(sbxerr.VolumeInUse, "fake", "a sandbox uses it"))
	w.released(t, delete1)
	w.event(t, "VolumeFailedDelete")
	if v := w.pv(t); v == nil || len(v.Finalizers) != 1 {
		t.Fatalf("the PersistentVolume is %+v", v)
	}
	w.fails(nil)
	eventually(t, "the volume is gone", func() bool { return len(w.names()) == 0 })
	eventually(t, "the finalizer is gone", func() bool { v := w.pv(t); return v == nil || len(v.Finalizers) == 0 })
}

func TestRetain(t *testing.T) {
	keep := corev1.PersistentVolumeReclaimRetain
	w := run(t, newClass(func(s *storagev1.StorageClass) { s.ReclaimPolicy = &keep }), newClaim())
	w.released(t, delete1)
	eventually(t, "the finalizer is gone", func() bool { v := w.pv(t); return v == nil || len(v.Finalizers) == 0 })
	if !slices.Equal(w.names(), []string{volume1}) {
		t.Errorf("the volumes are %q", w.names())
	}
}

// TestPersistentVolumesOfOthers: a label alone does not make a volume this provisioner's.
func TestPersistentVolumesOfOthers(t *testing.T) {
	w := run(t, newClass(), newClaim())
	w.released(t, func(v *corev1.PersistentVolume) {
		delete(v.Annotations, provisionedBy)
		delete1(v)
	})
	time.Sleep(200 * time.Millisecond) // nothing announces that nothing is done
	if v := w.pv(t); len(w.names()) != 1 || v == nil || len(v.Finalizers) != 1 {
		t.Errorf("the volumes are %q, and %+v", w.names(), v)
	}
}

// TestWithoutRights: the node says once at itself what it lacks.
func TestWithoutRights(t *testing.T) {
	w := &world{daemon: &daemon{volumes: map[string]int64{}}, client: fake.NewClientset(newClass(), newClaim()), events: record.NewFakeRecorder(100)}
	var mu sync.Mutex
	forbidden := true
	w.client.PrependReactor("list", "persistentvolumeclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return forbidden, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "", nil)
	})
	w.start(t)
	w.event(t, "bind the ClusterRole caisson-volumes to the user system:node:n")
	mu.Lock()
	forbidden = false
	mu.Unlock()
	w.event(t, "ProvisioningSucceeded")
}
