package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/caisson-run/caisson/api/caisson/v1" // registers the messages
	"github.com/caisson-run/caisson/tests/harness"
)

// What any request may cost the daemon, of processors, and how much text of an error any of
// them gets.
const (
	largeWork   = 3 * time.Second
	largeAnswer = 64 << 10
)

// Every field of every request that can hold much gets much: the answer costs little
// and is short, and the daemon does not grow.
func TestLargeInput(t *testing.T) {
	d := harness.Start(t)
	box(t, d, "large")
	c := largeCaller(t, d)
	protoregistry.GlobalFiles.RangeFilesByPackage("caisson.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for methods, k := f.Services().Get(i).Methods(), 0; k < methods.Len(); k++ {
				c.method(methods.Get(k))
			}
		}
		return true
	})
	made := strings.Fields(d.Run(t, "ls", "--quiet").Stdout) // 20,000 variables make one
	d.Run(t, append([]string{"rm", "--force"}, made...)...)
	d.AwaitNoSandbox(t)
	if rss := d.PeakMemory(t); rss > 1<<30 {
		t.Errorf("the daemon had %d MiB", rss>>20)
	}
}

type caller struct {
	t      *testing.T
	pid    int // of the daemon
	client *http.Client
}

func largeCaller(t *testing.T, d *harness.Daemon) caller {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return caller{t, d.PID(), &http.Client{Transport: tr, Timeout: time.Minute}}
}

// method calls m once for each value of each field.
func (c caller) method(m protoreflect.MethodDescriptor) {
	for _, path := range pathsOf(m.Input(), nil) {
		for name, set := range largeValues(path[len(path)-1]) {
			msg := dynamicpb.NewMessage(m.Input())
			at := protoreflect.Message(msg)
			for _, f := range path[:len(path)-1] {
				fillIn(at)
				at = at.Mutable(f).Message()
			}
			fillIn(at)
			set(at)
			c.call(m, string(path[len(path)-1].FullName())+" with "+name, msg)
		}
	}
}

// pathsOf lists the ways to all fields of d that can hold much.
func pathsOf(d protoreflect.MessageDescriptor, above []protoreflect.FieldDescriptor) [][]protoreflect.FieldDescriptor {
	var all [][]protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := append(append([]protoreflect.FieldDescriptor{}, above...), f)
		switch {
		case f.IsList() || f.IsMap() || f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			all = append(all, path)
		case f.Message() != nil && f.Message().ParentFile().Package() == d.ParentFile().Package():
			all = append(all, pathsOf(f.Message(), path)...)
		}
	}
	return all
}

// fillIn gives m what else would be missed first.
func fillIn(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for name, value := range map[protoreflect.Name]string{"ref": "large", "id": "large", "path": "/tmp", "from": "/tmp/a", "to": "/tmp/b", "target": "x.test"} {
		if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.StringKind && f.Cardinality() != protoreflect.Repeated {
			m.Set(f, protoreflect.ValueOfString(value))
		}
	}
	if f := fields.ByName("no_stream"); f != nil { // else it has no end
		m.Set(f, protoreflect.ValueOfBool(true))
	}
	if f := fields.ByName("args"); f != nil && f.IsList() {
		m.Mutable(f).List().Append(protoreflect.ValueOfString("true"))
	}
	if f := fields.ByName("exec"); f != nil && f.Message() != nil {
		fillIn(m.Mutable(f).Message())
	}
}

// mapValue is a value of a map of strings or bytes.
func mapValue(f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.MapValue().Kind() == protoreflect.BytesKind {
		return protoreflect.ValueOfBytes([]byte("v"))
	}
	return protoreflect.ValueOfString("v")
}

// largeValues are ways to put much into f.
func largeValues(f protoreflect.FieldDescriptor) map[string]func(protoreflect.Message) {
	all := map[string]func(protoreflect.Message){}
	switch {
	case f.IsMap():
		for _, key := range []string{"x", "x/"} {
			all["20000 keys such as "+key] = func(m protoreflect.Message) {
				for i := range 20_000 {
					m.Mutable(f).Map().Set(protoreflect.ValueOfString(key+strconv.Itoa(i)).MapKey(), mapValue(f))
				}
			}
		}
		all["a long key"] = func(m protoreflect.Message) {
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(strings.Repeat("x", 1<<20)).MapKey(), mapValue(f))
		}
	case f.IsList():
		all["1000000 empty entries"] = func(m protoreflect.Message) { fillList(m.Mutable(f).List(), f, 1_000_000, "") }
		all["20000 entries"] = func(m protoreflect.Message) { fillList(m.Mutable(f).List(), f, 20_000, "x\x01") }
		all["4000 rules"] = func(m protoreflect.Message) { fillList(m.Mutable(f).List(), f, 4000, "x_y:bad") }
		if f.Kind() == protoreflect.StringKind {
			all["a long entry"] = func(m protoreflect.Message) {
				fillList(m.Mutable(f).List(), f, 1, "a.test:"+strings.Repeat("1+", 1<<19))
			}
		}
	case f.Kind() == protoreflect.BytesKind:
		all["1 MiB"] = func(m protoreflect.Message) { m.Set(f, protoreflect.ValueOfBytes(make([]byte, 1<<20))) }
	default:
		for _, begin := range []string{"x", "/", "a:b=", "http://", "0"} {
			all["1 MiB after "+begin] = func(m protoreflect.Message) {
				m.Set(f, protoreflect.ValueOfString(begin+strings.Repeat("x", 1<<20)))
			}
		}
	}
	return all
}

func fillList(l protoreflect.List, f protoreflect.FieldDescriptor, n int, text string) {
	for range n {
		switch f.Kind() {
		case protoreflect.StringKind:
			l.Append(protoreflect.ValueOfString(text))
		case protoreflect.Uint32Kind:
			l.Append(protoreflect.ValueOfUint32(1))
		default:
			l.Append(l.NewElement())
		}
	}
}

// call sends msg as Connect does, and ends the call when its first answer is there.
func (c caller) call(m protoreflect.MethodDescriptor, what string, msg proto.Message) {
	body, err := proto.Marshal(msg)
	if err != nil {
		c.t.Fatal(err)
	}
	kind := "application/proto"
	if m.IsStreamingClient() || m.IsStreamingServer() {
		kind = "application/connect+proto"
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	service := m.Parent().(protoreflect.ServiceDescriptor).FullName()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://caisson/"+string(service)+"/"+string(m.Name()), bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Connect-Protocol-Version", "1")
	before := harness.CPUTime(c.t, c.pid)
	res, err := c.client.Do(req)
	if err != nil {
		c.t.Errorf("%s, %s: %v", m.FullName(), what, err)
		return
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	refused := bytes.Contains(answer, []byte("caisson.v1.ErrorDetail")) // much may also be fine, and is told back
	if work := harness.CPUTime(c.t, c.pid) - before; err != nil || refused && len(answer) > largeAnswer || work > largeWork {
		c.t.Errorf("%s, %s: %d bytes with status %d in %v, %v", m.FullName(), what, len(answer), res.StatusCode, work, err)
	}
}
