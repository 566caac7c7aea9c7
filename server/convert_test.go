package server

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// The conversions are plain copying, so the tests fill every field with a value
// of its own, convert, and compare all leaves of both sides by name. A field
// that is added on one side and forgotten on the other fails here.

// renamed maps the names of Go fields to those of the messages, where they
// differ in more than case and underscores.
var renamed = map[string]string{
	"limits.cpu":  "limits.millicpu",
	"outputlimit": "outputlimitbytes",
	"specjson":    "ocispecjson",
}

// parts maps the fields of a result that are in a part of the message.
var parts = map[string]string{
	"cpu": "usage.cpu", "peakmemorybytes": "usage.peakmemorybytes", "maxrssbytes": "usage.maxrssbytes",
	"throttled": "usage.cputhrottled", "throttledperiods": "usage.cputhrottledperiods",
	"ioreadbytes": "usage.ioreadbytes", "iowritebytes": "usage.iowritebytes",
	"sandboxid": "sandbox.id", "network": "sandbox.network", "imageverified": "sandbox.imageverified",
	"sandboxlimitshit": "sandbox.limitshit", "egress": "sandbox.egress",
}

func TestToMessages(t *testing.T) {
	conversions := map[string]struct {
		from    any
		convert func(any) proto.Message
		inside  []string // embedded parts that are fields of the message
	}{
		"Result":       {&runtime.Result{}, func(v any) proto.Message { return resultOf(v.(*runtime.Result)) }, nil},
		"Info":         {&runtime.Info{}, func(v any) proto.Message { return sandboxPB(*v.(*runtime.Info)) }, nil},
		"Detail":       {&runtime.Detail{}, func(v any) proto.Message { return detailPB(v.(*runtime.Detail)) }, []string{"info=sandbox"}},
		"Leftover":     {&runtime.Leftover{}, func(v any) proto.Message { return leftoverPB(*v.(*runtime.Leftover)) }, nil},
		"SpecView":     {&runtime.SpecView{}, func(v any) proto.Message { return specPB(v.(*runtime.SpecView)) }, nil},
		"Image":        {&images.Image{}, func(v any) proto.Message { return imagePB(*v.(*images.Image)) }, nil},
		"ImageDetail":  {&images.Detail{}, func(v any) proto.Message { return imageDetailPB(v.(*images.Detail)) }, []string{"image=image"}},
		"ImportReport": {&images.Report{}, func(v any) proto.Message { return reportPB(*v.(*images.Report)) }, nil},
		"Versions":     {&runtime.Versions{}, func(v any) proto.Message { return versionsPB(*v.(*runtime.Versions)) }, nil},
		"Check":        {&runtime.Check{}, func(v any) proto.Message { return checkPB(*v.(*runtime.Check)) }, nil},
		"ExecInfo":     {&runtime.ExecInfo{}, func(v any) proto.Message { return execPB(*v.(*runtime.ExecInfo)) }, nil},
		"Cleaned":      {&runtime.Cleaned{}, func(v any) proto.Message { return cleanedPB(*v.(*runtime.Cleaned)) }, nil},
		"Reloaded":     {&runtime.Reloaded{}, func(v any) proto.Message { return reloadedPB(*v.(*runtime.Reloaded)) }, nil},
		"HostInfo":     {&runtime.HostInfo{}, func(v any) proto.Message { return infoPB(*v.(*runtime.HostInfo)) }, nil},
		"SandboxStats": {&runtime.SandboxStats{}, func(v any) proto.Message { return sandboxStatsPB(*v.(*runtime.SandboxStats)) }, nil},
		"History":      {&runtime.History{}, func(v any) proto.Message { return historyPB(v.(*runtime.History)) }, nil},
		"Capability":   {&runtime.Capability{}, func(v any) proto.Message { return capabilityPB(*v.(*runtime.Capability)) }, nil},
	}
	for name, c := range conversions {
		t.Run(name, func(t *testing.T) {
			(&filler{}).fill(reflect.ValueOf(c.from).Elem())
			got := leavesOfGo(c.from, c.inside...)
			delete(got, "limits.disks") // of the cgroup, with whose values inspect shows them
			compare(t, got, leavesOfMessage(c.convert(c.from)))
		})
	}
}

// inGo renames the leaves of a message that the runtime calls as the kernel does. Those
// of env are one variable.
func inGo(leaves map[string]string) map[string]string {
	names := map[string]string{"workdir": "cwd", "exec_id": "exec", "execid": "exec"}
	out := map[string]string{}
	for path, value := range leaves {
		variable, env := strings.CutPrefix(path, "env[")
		switch {
		case env:
			out["env[0]"] = strings.TrimSuffix(variable, "]") + "=" + value
		case path == "rlimits[0].name":
			out[path] = "RLIMIT_" + strings.ToUpper(value)
		default:
			out[cmp.Or(names[path], path)] = value
		}
	}
	return out
}

// leavesWithout leaves out the fields that are no part of the runtime's request.
func leavesWithout(m proto.Message, fields ...string) map[string]string {
	out := leavesOfMessage(m)
	for _, f := range fields {
		delete(out, f)
	}
	return out
}

func TestCreateRequestRoundTrip(t *testing.T) {
	m := &caissonv1.CreateRequest{}
	fillMessage(&filler{}, m.ProtoReflect())
	m.Spec.Name = "a-name"
	req, err := createRequestOf(m)
	if err != nil {
		t.Fatal(err)
	}
	if !req.Ensure || !req.Replace || req.Key != m.IdempotencyKey {
		t.Errorf("ensure %v, replace %v, key %q", req.Ensure, req.Replace, req.Key)
	}
	got := leavesOfGo(&req)
	delete(got, "pooled")
	delete(got, "build")  // the daemon sets it itself
	delete(got, "site")   // by learn_private of a RunSpec
	delete(got, "ensure") // of the request, not of its spec
	delete(got, "replace")
	delete(got, "key")
	compare(t, got, inGo(leavesWithout(m.Spec)))
}

func TestExecRequestRoundTrip(t *testing.T) {
	for _, absent := range []string{"args", "shell"} { // they exclude each other
		spec := &caissonv1.ExecSpec{}
		fillMessage(&filler{}, spec.ProtoReflect())
		spec.ProtoReflect().Clear(spec.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(absent)))
		want := inGo(leavesWithout(spec))
		req, err := execOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, leavesOfGo(&req), want)
		if spec.Inputs != nil {
			t.Error("the message keeps the content of input files")
		}
	}
}

func TestOtherRequestsRoundTrip(t *testing.T) {
	update := &caissonv1.UpdateRequest{}
	fillMessage(&filler{}, update.ProtoReflect())
	u, err := updateOf(update)
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]string{}
	for path, value := range leavesOfGo(&u) {
		changes[strings.TrimPrefix(path, "limits.")] = value // flat in the message
	}
	compare(t, changes, leavesWithout(update, "ref"))
	logs := &caissonv1.LogsRequest{}
	fillMessage(&filler{}, logs.ProtoReflect())
	logs.Stream = "stderr"
	l, err := logOptionsOf(logs)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, leavesOfGo(&l), inGo(leavesWithout(logs, "ref", "timestamps")))
	attach := &caissonv1.AttachExecRequest{}
	fillMessage(&filler{}, attach.ProtoReflect())
	o, err := attachOf(attach)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, leavesOfGo(&o), leavesWithout(attach, "ref", "id"))
}

func TestRequestKeepsWhatIsAbsent(t *testing.T) {
	req, err := requestOf(&caissonv1.RunSpec{Exec: &caissonv1.ExecSpec{Args: []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := (plan.Request{Exec: plan.ExecRequest{Args: []string{"x"}}}); !reflect.DeepEqual(req, want) {
		t.Errorf("got %+v, want %+v", req, want)
	}
	if req, err := requestOf(&caissonv1.RunSpec{LearnPrivate: true}); sbxerr.Of(err) != sbxerr.APIUsage {
		t.Errorf("private without learn: %+v, %v", req, err)
	}
	if req, err := requestOf(&caissonv1.RunSpec{Learn: true, LearnPrivate: true}); err != nil || !req.LearnPrivate {
		t.Errorf("learn private: %+v, %v", req, err)
	}
	if req, err := requestOf(&caissonv1.RunSpec{Learn: true}); err != nil || !req.Learn {
		t.Errorf("learn: %+v, %v", req, err)
	}
	zero := int64(0)
	req, err = requestOf(&caissonv1.RunSpec{
		Sandbox: &caissonv1.SandboxSpec{Limits: &caissonv1.Limits{Pids: &zero}},
		Exec:    &caissonv1.ExecSpec{Timeout: &durationpb.Duration{}, Limits: &caissonv1.ExecLimits{Pids: &zero}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if req.Create.Limits.Pids == nil || req.Exec.Timeout == nil || req.Exec.Limits.PIDs == nil || req.Create.Limits.MemoryBytes != nil {
		t.Errorf("zero and absent are confused: %+v", req)
	}
}

func TestRequestRefuses(t *testing.T) {
	sandbox := func(s *caissonv1.SandboxSpec) *caissonv1.RunSpec { return &caissonv1.RunSpec{Sandbox: s} }
	exec := func(e *caissonv1.ExecSpec) *caissonv1.RunSpec { return &caissonv1.RunSpec{Exec: e} }
	tests := map[string]struct {
		spec *caissonv1.RunSpec
		want string
	}{
		"nothing":          {nil, "no spec"},
		"a name":           {sandbox(&caissonv1.SandboxSpec{Name: "../x"}), "not a name"},
		"a ttl below zero": {sandbox(&caissonv1.SandboxSpec{Ttl: durationpb.New(-1)}), "ttl of -1ns is negative"},
		"idle below zero":  {sandbox(&caissonv1.SandboxSpec{IdleTimeout: durationpb.New(-time.Second)}), "idle_timeout of -1s"},
		"keep and detach":  {&caissonv1.RunSpec{Keep: true, Detach: true}, "keep excludes detach"},
		"keep and learn":   {&caissonv1.RunSpec{Keep: true, Learn: true}, "and learn"},
		"a timeout":        {exec(&caissonv1.ExecSpec{Timeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}), "timeout"},
		"two commands":     {exec(&caissonv1.ExecSpec{Args: []string{"x"}, Shell: "x"}), "exclude each other"},
		"no rows":          {exec(&caissonv1.ExecSpec{Tty: &caissonv1.WinSize{Cols: 80}}), "0 rows and 80 columns"},
		"a variable":       {exec(&caissonv1.ExecSpec{Env: map[string]string{"A=B": ""}}), "holds no ="},
		"too wide":         {exec(&caissonv1.ExecSpec{Tty: &caissonv1.WinSize{Rows: 1, Cols: 65536}}), "65536 columns"},
	}
	for name, tt := range tests {
		if _, err := requestOf(tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := requestOf(&caissonv1.RunSpec{Sandbox: &caissonv1.SandboxSpec{Name: "A/"}, Detach: true, Keep: true})
	if err == nil || !strings.Contains(err.Error(), "not a name") || !strings.Contains(err.Error(), "keep excludes detach") {
		t.Errorf("not all reasons: %v", err)
	}
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nothing to compare")
	}
	for path, value := range want {
		if got[path] != value {
			t.Errorf("%s: %q on the Go side, %q in the message", path, got[path], value)
		}
	}
	for path := range maps.Keys(got) {
		if _, ok := want[path]; !ok {
			t.Errorf("%s is not in the message", path)
		}
	}
}

// untold reports whether no message has a field: it is not exported, or for steps of a build
// alone.
func untold(t reflect.Type, field int) bool {
	name := t.Field(field).Name
	return !t.Field(field).IsExported() || t == reflect.TypeFor[plan.MountRequest]() && (name == "Layers" || name == "File")
}

// filler gives every leaf a value that no other has.
type filler struct{ n int64 }

func (f *filler) next() int64 { f.n++; return f.n }

func (f *filler) fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+f.next(), 0).UTC()))
		return
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes(fmt.Appendf(nil, "b%d", f.next()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", f.next()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(f.next())
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.next()))
	case reflect.Float64:
		v.SetFloat(float64(f.next()) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if !untold(v.Type(), i) {
				f.fill(v.Field(i))
			}
		}
	default:
		panic("no value for a " + v.Type().String())
	}
}

func leavesOfGo(v any, inside ...string) map[string]string {
	out := map[string]string{}
	walkGo(reflect.ValueOf(v), "", inside, out)
	return out
}

func walkGo(v reflect.Value, path string, inside []string, out map[string]string) {
	switch leaf := v.Interface().(type) {
	case time.Time:
		out[path] = leaf.Format(time.RFC3339Nano)
		return
	case time.Duration:
		out[path] = leaf.String()
		return
	case []byte:
		out[path] = string(leaf)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walkGo(v.Elem(), path, inside, out)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walkGo(v.Index(i), fmt.Sprintf("%s[%d]", path, i), nil, out)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			out[fmt.Sprintf("%s[%s]", path, k)] = fmt.Sprint(v.MapIndex(k))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if untold(v.Type(), i) {
				continue
			}
			name := goName(v.Type().Field(i).Name, inside)
			if v.Type() == reflect.TypeFor[runtime.Result]() {
				name = cmp.Or(parts[name], name)
			}
			walkGo(v.Field(i), join(path, name), inside, out)
		}
	default:
		out[path] = fmt.Sprint(v.Interface())
	}
}

func goName(field string, inside []string) string {
	name := strings.ToLower(field)
	for _, pair := range inside {
		if from, to, _ := strings.Cut(pair, "="); from == name {
			return to
		}
	}
	return name
}

func join(path, name string) string {
	if path != "" {
		name = path + "." + name
	}
	if new, ok := renamed[name]; ok {
		return new
	}
	for from, to := range renamed {
		if strings.HasSuffix(name, "."+from) {
			return strings.TrimSuffix(name, from) + to
		}
	}
	return name
}

func leavesOfMessage(m proto.Message) map[string]string {
	out := map[string]string{}
	walkMessage(m.ProtoReflect(), "", out)
	return out
}

func walkMessage(m protoreflect.Message, path string, out map[string]string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := strings.ReplaceAll(string(f.Name()), "_", "")
		if path != "" {
			name = path + "." + name
		}
		value := m.Get(f)
		switch {
		case f.IsMap():
			value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				out[fmt.Sprintf("%s[%s]", name, k)] = v.String()
				return true
			})
		case f.IsList():
			for i := range value.List().Len() {
				walkValue(f, value.List().Get(i), fmt.Sprintf("%s[%d]", name, i), out)
			}
		case f.Message() != nil && !m.Has(f):
			out[name] = "absent"
		default:
			walkValue(f, value, name, out)
		}
	}
}

func walkValue(f protoreflect.FieldDescriptor, v protoreflect.Value, path string, out map[string]string) {
	if f.Kind() == protoreflect.BytesKind {
		out[path] = string(v.Bytes())
		return
	}
	if f.Message() == nil {
		out[path] = v.String()
		return
	}
	switch m := v.Message().Interface().(type) {
	case *durationpb.Duration:
		out[path] = m.AsDuration().String()
	case *timestamppb.Timestamp:
		out[path] = m.AsTime().Format(time.RFC3339Nano)
	default:
		walkMessage(v.Message(), path, out)
	}
}

// fillMessage gives every leaf of a message a value that no other has.
func fillMessage(fill *filler, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		text := func() protoreflect.Value { return protoreflect.ValueOfString(fmt.Sprintf("s%d", fill.next())) }
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(text().MapKey(), text())
		case f.IsList() && f.Message() != nil:
			fillMessage(fill, m.Mutable(f).List().AppendMutable().Message())
		case f.IsList() && f.Kind() == protoreflect.Uint32Kind:
			m.Mutable(f).List().Append(protoreflect.ValueOfUint32(uint32(fill.next())))
		case f.IsList():
			m.Mutable(f).List().Append(text())
			m.Mutable(f).List().Append(text())
		case f.Kind() == protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(uint32(fill.next())))
		case f.Kind() == protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOfUint64(uint64(fill.next())))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, text())
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte(text().String())))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(fill.next()))
		case f.Kind() == protoreflect.MessageKind:
			fillMessage(fill, m.Mutable(f).Message())
		case f.Kind() == protoreflect.Int32Kind:
			m.Set(f, protoreflect.ValueOfInt32(int32(fill.next())))
		default:
			panic("no value for " + string(f.FullName()))
		}
	}
}
