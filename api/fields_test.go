package api_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/caisson-run/caisson/api/caisson/v1"
)

var update = flag.Bool("update", false, "add new calls and fields to testdata/fields.txt")

// TestFieldsStay: no call, field, type or number that a caller may rely on changes by
// accident. -update adds what is new; what is to change is deleted from the file by hand.
func TestFieldsStay(t *testing.T) {
	const file = "testdata/fields.txt"
	data, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	stored := strings.Split(strings.TrimSpace(string(data)), "\n")
	current := describe()
	for _, line := range stored {
		if line != "" && !slices.Contains(current, line) {
			t.Errorf("%q is gone or changed: delete the line from %s if that is meant", line, file)
		}
	}
	for _, line := range current {
		if !*update && !slices.Contains(stored, line) {
			t.Errorf("%q is new: -update adds it to %s", line, file)
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(strings.Join(current, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// describe is one line for each call and each field.
func describe() []string {
	var list []string
	protoregistry.GlobalFiles.RangeFilesByPackage("caisson.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				list = append(list, fmt.Sprintf("%s(%s) %s streams %v %v", m.FullName(), m.Input().Name(), m.Output().Name(), m.IsStreamingClient(), m.IsStreamingServer()))
			}
		}
		for i := range f.Messages().Len() {
			for j := range f.Messages().Get(i).Fields().Len() {
				d := f.Messages().Get(i).Fields().Get(j)
				list = append(list, fmt.Sprintf("%s = %d %s %s presence %v", d.FullName(), d.Number(), d.Cardinality(), kindOf(d), d.HasPresence()))
			}
		}
		return true
	})
	slices.Sort(list)
	return list
}

func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", f.MapKey().Kind(), kindOf(f.MapValue()))
	case f.Message() != nil:
		return string(f.Message().FullName())
	}
	return f.Kind().String()
}
