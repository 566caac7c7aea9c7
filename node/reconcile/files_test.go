package reconcile

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-run/caisson/node/pod"
)

func writeAll(t *testing.T, dir string, files ...pod.File) string {
	t.Helper()
	if err := writeFiles(dir, files); err != nil {
		t.Fatal(err)
	}
	to, err := os.Readlink(filepath.Join(dir, current))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// visible are the names that a container lists.
func visible(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestWriteFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	a := pod.File{Path: "a", Mode: 0o400, Data: []byte("1")}
	deep := pod.File{Path: "d/e/f", Mode: 0o644, Data: []byte("2")}
	first := writeAll(t, dir, a, deep)
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("a is %v, %v", info, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d/e/f")); string(text) != "2" {
		t.Errorf("d/e/f is %q, %v", text, err)
	}
	if again := writeAll(t, dir, a, deep); again != first {
		t.Error("written anew without a change")
	}
	a.Data = []byte("new")
	second := writeAll(t, dir, a)
	if text, err := os.ReadFile(filepath.Join(dir, "a")); string(text) != "new" {
		t.Errorf("a is %q, %v", text, err)
	}
	if got := visible(t, dir); !slices.Equal(got, []string{current, second, "a"}) && !slices.Equal(got, []string{second, current, "a"}) {
		t.Errorf("there are %q", got)
	}
	if writeAll(t, dir) == second || len(visible(t, dir)) != 2 {
		t.Errorf("there are %q", visible(t, dir))
	}
}

// TestHostileKeys do not leave the directory, nor do they replace what the node needs.
func TestHostileKeys(t *testing.T) {
	parent := t.TempDir()
	if err := writeFiles(filepath.Join(parent, "v"), []pod.File{{Path: "../out", Data: []byte("x")}}); err == nil {
		t.Error("written outside of the volume's files")
	}
	if _, err := os.Stat(filepath.Join(parent, "out")); err == nil {
		t.Error("written outside of the volume")
	}
}

func TestChangedConfigMapReachesAPod(t *testing.T) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "ns"}, Data: map[string]string{"k": "old"}}
	w := newWorld(t, m, newPod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}))
	w.run(t)
	w.phase(t, corev1.PodRunning)
	file := filepath.Join(w.config.Files, uid1, "v", "k")
	is := func(want string) func() bool {
		return func() bool {
			text, _ := os.ReadFile(file)
			return string(text) == want
		}
	}
	eventually(t, "the file", is("old"))
	m.Data["k"] = "new"
	if _, err := w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new file", is("new"))
	if err := w.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.finish(box1, 0)
	w.phase(t, corev1.PodSucceeded)
	if !is("new")() {
		t.Error("the file of a deleted ConfigMap is gone")
	}
}
