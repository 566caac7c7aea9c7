package pod

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write the table of docs/reference/kubernetes.md")

// TestEachFieldIsDecided walks the types of a pod's spec: each field has a row or is above one,
// and each row is of a field that there is.
func TestEachFieldIsDecided(t *testing.T) {
	w := &typeWalk{used: map[string]bool{}}
	w.walk(reflect.TypeFor[corev1.PodSpec](), "")
	for _, path := range w.open {
		t.Errorf("no decision on %s", path)
	}
	for _, f := range Fields {
		if !w.used[f.Path] {
			t.Errorf("a decision on %s, which is no field", f.Path)
		}
	}
	if len(w.used) < 100 {
		t.Errorf("the walk met only %d rows", len(w.used))
	}
}

type typeWalk struct {
	used map[string]bool
	open []string
}

func (w *typeWalk) walk(of reflect.Type, path string) {
	if f, ok := row(path); ok {
		w.used[f.Path] = true
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		w.walk(of.Elem(), path)
	case reflect.Slice:
		w.walk(of.Elem(), path+"[]")
	case reflect.Struct:
		for i := range of.NumField() {
			name := jsonName(of.Field(i))
			if name == "" {
				w.walk(of.Field(i).Type, path)
				continue
			}
			w.walk(of.Field(i).Type, strings.TrimPrefix(path+"."+name, "."))
		}
	default:
		w.open = append(w.open, path)
	}
}

// TestTable compares the page with the decisions.
func TestTable(t *testing.T) {
	const page, begin, end = "../../docs/reference/kubernetes.md", "<!-- fields -->\n", "<!-- end of fields -->\n"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + Table() + end + after
	if want == string(content) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code decides: go test ./pod -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
