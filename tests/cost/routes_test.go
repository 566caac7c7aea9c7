package cost

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// whole is set for the full set of inputs. One in sampled of them runs else.
var whole = os.Getenv("CAISSON_COST") == "whole"

const sampled = 8

// input is the worst of one form for one route.
type input struct{ name, method, path, body string }

var fieldsOfPaths = regexp.MustCompile(`\{[^}]*\}`)

// inputs are the worst for each route: for each field of its message as much of it as a
// request takes, and what does not depend on the message.
func inputs(t *testing.T) (all []input) {
	t.Helper()
	routes := 0
	protoregistry.GlobalFiles.RangeFilesByPackage(caissonv1.File_caisson_v1_caisson_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				for _, r := range proto.GetExtension(m.Options(), caissonv1.E_Route).([]*caissonv1.Route) {
					routes++
					all = append(all, inputsOf(m.Input(), r)...)
				}
			}
		}
		return true
	})
	if routes < 60 {
		t.Fatalf("only %d routes", routes)
	}
	slices.SortFunc(all, func(a, b input) int { return strings.Compare(a.name, b.name) })
	return all
}

func inputsOf(m protoreflect.MessageDescriptor, r *caissonv1.Route) (all []input) {
	path := fieldsOfPaths.ReplaceAllString(r.Path, "none")
	add := func(what, path, body string) {
		all = append(all, input{r.Method + " " + r.Path + ": " + what, r.Method, path, body})
	}
	long := strings.Repeat("%2e%41", (60<<10)/6)
	add("long path", fieldsOfPaths.ReplaceAllString(r.Path, long), "")
	add("long query", path+"?"+strings.Repeat("a&", (60<<10)/2), "")
	for i := range m.Fields().Len() {
		name := string(m.Fields().Get(i).Name())
		add("query of "+name, path+"?"+strings.Repeat(name+"=1&", (60<<10)/(len(name)+3)), "")
	}
	switch {
	case r.Body != "":
		add("bytes", path, strings.Repeat("\x00", large))
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		for what, body := range bodiesOf(m, 0) {
			add(what, path, body)
		}
	}
	return all
}

// deepest is how deep in a message its fields are filled.
const deepest = 3

// bodiesOf are JSON of a message, each with one field filled.
func bodiesOf(m protoreflect.MessageDescriptor, depth int) map[string]string {
	all := map[string]string{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := string(f.Name())
		head := `{"` + name + `":`
		value := valueOf(f)
		switch {
		case f.IsMap():
			all[name] = head + "{" + numbered(large-10, `"%d":`+valueOf(f.MapValue())+",") + "}}"
		case f.IsList():
			all[name] = head + "[" + strings.Repeat(value+",", large/(len(value)+1)-10) + value + "]}"
		case f.Kind() == protoreflect.StringKind:
			all[name] = head + `"` + strings.Repeat(`\u00e9`, large/6-10) + `"}`
		case f.Kind() == protoreflect.BytesKind:
			all[name] = head + `"` + base64.StdEncoding.EncodeToString(make([]byte, large/4*3-100)) + `"}`
		case f.Message() == nil:
			all[name] = head + strings.Repeat("1", large-100) + "}"
		}
		if f.Message() == nil || f.IsMap() || depth == deepest || f.Message().ParentFile().Package() != m.ParentFile().Package() {
			continue
		}
		for what, body := range bodiesOf(f.Message(), depth+1) {
			if f.IsList() {
				body = "[" + body + "]"
			}
			all[name+"."+what] = head + body + "}"
		}
	}
	return all
}

// valueOf is a short value of a field.
func valueOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration":
		return `"1s"`
	case f.Message() != nil:
		return "{}"
	case f.Kind() == protoreflect.BoolKind:
		return "true"
	case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
		return `""`
	}
	return "1"
}

// numbered repeats a text with its number up to a size.
func numbered(size int, format string) string {
	var b strings.Builder
	for n := 0; b.Len() < size-40; n++ {
		fmt.Fprintf(&b, format, n)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// say sends an input, and returns the status of the answer. It hangs up soon: some answers
// have no end.
func say(t *testing.T, d *harness.Daemon, in input) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
	}}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, in.method, "http://caisson"+in.path, strings.NewReader(in.body))
	if err != nil {
		t.Fatal(err)
	}
	if in.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(r)
	if err != nil {
		return 0 // it has not answered, or has answered before all was sent
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
	return res.StatusCode
}

// Each route costs the daemon little, whatever field of its message is how large.
func TestWorstOfEachRoute(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	var log bytes.Buffer
	most, worst := time.Duration(0), ""
	for i, in := range inputs(t) {
		if !whole && i%sampled != 0 {
			continue
		}
		status := 0
		cpu, memory := cost(t, d, func() { status = say(t, d, in) })
		if cpu > most {
			most, worst = cpu, in.name
		}
		fmt.Fprintf(&log, "%s: %d, %s, %d KiB\n", in.name, status, cpu, memory)
		if cpu > mostCPU || memory > mostMemory {
			t.Errorf("%s: %s of CPU and %d KiB, want at most %s and %d", in.name, cpu, memory, mostCPU, mostMemory)
		}
	}
	t.Logf("most: %s by %s\n%s", most, worst, &log)
	d.Run(t, "run", "--", "true")
}
