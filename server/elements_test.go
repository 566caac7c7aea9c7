package server

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/strictjson"
)

// TestElements checks that what takes much more memory than bytes on the wire is
// refused before it is decoded, and that all that is in bounds is not.
func TestElements(t *testing.T) {
	const most = 64 << 10
	fine := &caissonv1.StartExecRequest{Exec: &caissonv1.ExecSpec{Args: make([]string, most), Env: map[string]string{}}, Stdin: make([]byte, 1<<20)}
	for i := range most {
		fine.Exec.Args[i], fine.Exec.Env[strconv.Itoa(i)] = `a,"\\`, `",,`
	}
	many := &caissonv1.StartExecRequest{Exec: &caissonv1.ExecSpec{}}
	for range strictjson.MaxElements {
		many.Exec.Rlimits = append(many.Exec.Rlimits, &caissonv1.Rlimit{})
	}
	deep := &caissonv1.SpecRequest{Spec: &caissonv1.RunSpec{Sandbox: &caissonv1.SandboxSpec{Allow: make([]string, strictjson.MaxElements)}}}
	for _, m := range []proto.Message{fine, many, deep} {
		refused := m != proto.Message(fine)
		binary, err := plainProto{}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		into := m.ProtoReflect().New().Interface()
		if err := (plainProto{}).Unmarshal(binary, into); (sbxerr.Of(err) == sbxerr.APIUsage) != refused {
			t.Errorf("%T: %v", m, err)
		}
		if !refused && !proto.Equal(m, into) {
			t.Error("it came out as something else")
		}
		into = m.ProtoReflect().New().Interface()
		err = strictjson.Unmarshal(apijson.Marshal(m), into)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "more than 163840 fields") {
			t.Errorf("%T as JSON: %v", m, err)
		}
	}
}

// A malformed message is counted as far as it goes, for the decoder to refuse.
func TestElementsOfRubbish(t *testing.T) {
	d := (&caissonv1.StartExecRequest{}).ProtoReflect().Descriptor()
	for _, data := range []string{"", "\xff", "\x0a\xff", "\x12\x02\x0a\x05", strings.Repeat("\x0b", 100)} {
		if n := elementsOf([]byte(data), d, 0); n > 2 {
			t.Errorf("%q: %d", data, n)
		}
	}
}
