package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/server/servertest"
)

// plain makes a call of plain HTTP over HTTP/1.1.
func plain(t *testing.T, socket, method, path, body string, header ...string) *http.Response {
	t.Helper()
	tr := transport(socket, false)
	t.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// whole reads a body to its end.
func whole(t *testing.T, res *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%q, then %v", data, err)
	}
	return string(data)
}

// TestEveryCallHasARoute: no call is left out, and no two share a route.
func TestEveryCallHasARoute(t *testing.T) {
	taken := map[string]protoreflect.FullName{}
	protoregistry.GlobalFiles.RangeFilesByPackage("caisson.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				routes, _ := proto.GetExtension(m.Options(), caissonv1.E_Route).([]*caissonv1.Route)
				if len(routes) == 0 {
					t.Errorf("%s has no route", m.FullName())
				}
				for _, r := range routes {
					key := r.Method + " " + r.Path
					if other, found := taken[key]; found {
						t.Errorf("%s and %s are both %s", m.FullName(), other, key)
					}
					taken[key] = m.FullName()
				}
			}
		}
		return true
	})
	if len(taken) < 40 {
		t.Errorf("only %d routes", len(taken))
	}
}

func TestRoutes(t *testing.T) {
	var asked []string
	f := &servertest.Fake{
		Infos: []runtime.Info{{ID: "a", Labels: map[string]string{"team": "x"}}, {ID: "b"}},
		OnCreate: func(req plan.CreateRequest) (runtime.Info, error) {
			asked = append(asked, "create "+req.Name)
			return runtime.Info{ID: "id", Name: req.Name}, nil
		},
		OnRemove: func(ref string, force bool) (string, error) {
			if !force {
				return "", sbxerr.New(sbxerr.State, "fake.remove", "%s runs", ref)
			}
			return ref, nil
		},
		OnExec: func(_ context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			started(rio)
			_, _ = rio.Stdout.Write([]byte(strings.Join(req.Args, " ")))
			_, _ = rio.Stderr.Write([]byte{0xff})
			return &runtime.Result{StdoutBytes: int64(len(strings.Join(req.Args, " "))), StderrBytes: 1}, nil
		},
		ImageDetails: map[string]*images.Detail{"reg.example/a/b:1": {Image: images.Image{Name: "reg.example/a/b:1"}}},
	}
	socket := servertest.Listen(t, f)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/sandboxes", "", 200, `"id":"b"`},
		{"GET", "/v1/sandboxes?labels=team%3Dx", "", 200, `{"sandboxes":[{"id":"a",`},
		{"GET", "/v1/sandboxes?labels=team", "", 400, `give KEY=VALUE`},
		{"GET", "/v1/sandboxes?label=a", "", 400, `did you mean \"labels\"?`},
		{"GET", "/v1/sandboxes", "{}", 400, `takes no body`},
		{"POST", "/v1/sandboxes", `{"name":"n"}`, 201, `"name":"n"`},
		{"POST", "/v1/sandboxes?name=m", ``, 201, `"name":"m"`},
		{"POST", "/v1/sandboxes?spec.name=m", ``, 400, `there is no field \"spec.name\": its fields stand alone, without spec.`},
		{"POST", "/v1/sandboxes", `{"spec":{"name":"n"}}`, 400, `there is no field \"spec\": give its fields in the outermost object, as {\"name\": …}`},
		{"POST", "/v1/sandboxes", `{"name":"n","replase":true}`, 400, `unknown field \"replase\"; did you mean \"replace\"?`},
		{"POST", "/v1/sandboxes", `{"memory_bytes":"1"}`, 400, `it belongs into \"limits\"`},
		{"POST", "/v1/sandboxes", `{"name":"a","ensure":true,"name":"n"}`, 400, `duplicate field \"name\"`},
		{"POST", "/v1/sandboxes", `{"ensure":true,"ensure":true}`, 400, `duplicate field \"ensure\"`},
		{"POST", "/v1/sandboxes", `{"ensure":"yes"}`, 400, `"ensure is a string: give true or false"`},
		{"POST", "/v1/sandboxes", "{\"ensure\":true,\n \"network\": \"none\", \"idempotencyKey\": \"k\" ,\n\"nam\":\"n\"}", 400, `line 3, column 1 of the body: unknown field \"nam\"`},
		{"POST", "/v1/sandboxes", `{"name":"n"} {}`, 400, `the body is not JSON`},
		{"POST", "/v1/sandboxes?name=m", `{"name":"n"}`, 400, `name is given twice`},
		{"POST", "/v1/sandboxes", `{"nam":"n"}`, 400, `unknown field \"nam\"; did you mean \"name\"?`},
		{"POST", "/v1/sandboxes", `{"limits":{"memory_bytes":"x"}}`, 400, `invalid value for int64 field memory_bytes`},
		{"POST", "/v1/sandboxes", `{"spec"`, 400, `the body is not JSON: `},
		{"POST", "/v1/sandboxes", `[]`, 400, `"the body is a list: give an object"`},
		{"POST", "/v1/sandboxes", `null`, 400, `"the body is null: give an object"`},
		{"POST", "/v1/sandboxes", `{"env":["A=B"]}`, 400, `"env is a list: give an object such as {\"NAME\": \"VALUE\"}"`},
		{"POST", "/v1/sandboxes", `{"env":{"A":"","PORT":8080}}`, 400, `"env[\"PORT\"] is a number: give a string"`},
		{"POST", "/v1/sandboxes", `{"env":{"A":null}}`, 400, `"env[\"A\"] is null: give a string"`},
		{"POST", "/v1/sandboxes", `{"name":"\udcff"}`, 400, `a string in the body has half of an escaped character`},
		{"POST", "/v1/sandboxes", `{"allow_ech":"yes"}`, 400, `"allow_ech is a string: give true or false"`},
		{"POST", "/v1/sandboxes", `{"allow":"example.com"}`, 400, `"allow is a string: give a list"`},
		{"POST", "/v1/sandboxes", `{"mounts":[{},"a:b"]}`, 400, `"mounts[1] is a string: give an object"`},
		{"POST", "/v1/sandboxes", `{"ttl":90}`, 400, `"ttl is a number: give a duration in seconds such as \"90s\""`},
		{"POST", "/v1/sandboxes", `{"ttl":"1m30s"}`, 400, `"ttl is \"1m30s\": give a duration in seconds such as \"90s\""`},
		{"POST", "/v1/sandboxes/a/execs", `{"exec":{"args":["sh"],"tty":true}}`, 400, `"exec.tty is a boolean: give an object with rows, cols"`},
		{"POST", "/v1/sandboxes", `{"name":"` + strings.Repeat("x", 5<<20) + `"}`, 413, `larger than 4194304 bytes`},
		{"PUT", "/v1/sandboxes", `{}`, 405, `PUT is not a method`},
		{"GET", "/v1/sandboxs", ``, 404, `did you mean \"/v1/sandboxes\"?`},
		{"GET", "/v1//sandboxes", ``, 404, `SBX-801`},
		{"GET", "/v1/sandboxes/", ``, 404, `SBX-801`},
		{"GET", "/", ``, 404, `there is no route \"/\"`},
		{"GET", "/v1", ``, 404, `there is no route \"/v1\"`},
		{"GET", "/sandboxes", ``, 404, `did you mean \"/v1/sandboxes\"?`},
		{"GET", "/v1/sandboxes/nobody", ``, 404, `"code":"SBX-107"`},
		{"GET", "/v1/sandboxes/..", ``, 400, `is not a name`},
		{"GET", "/v1/sandboxes/%2e%2e%2fetc", ``, 400, `is not a name`},
		{"DELETE", "/v1/sandboxes/a", ``, 409, `"code":"SBX-108"`},
		{"DELETE", "/v1/sandboxes/a?force", ``, 200, `{"id":"a","changeset":""}`},
		{"DELETE", "/v1/sandboxes/a?force=maybe", ``, 400, `force is \"maybe\": give true or false`},
		{"POST", "/v1/sandboxes/a/stop?grace=soon", ``, 400, `give a duration such as 10s`},
		{"POST", "/v1/sandboxes/a/execs?wait=true", `{"exec":{"args":["echo","ü"]}}`, 200, `{"finished":{"result":{"exit_code":0`},
		{"POST", "/v1/sandboxes/a/execs?wait=true", `{"exec":{"args":["echo","ü"]}}`, 200, `"stdout_text":"echo ü"`},
		{"POST", "/v1/sandboxes/a/execs?wait=true", `{"exec":{"args":["echo","ü"]}}`, 200, `"stderr":"/w=="`},
		{"POST", "/v1/sandboxes/a/exec", `{"exec":{"args":["x"]}}`, 404, `there is no route`},
		{"POST", "/v1/sandboxes/a/execs?wait=true", `{"ref":"b","exec":{"args":["x"]}}`, 400, `ref is given twice`},
		{"GET", "/v1/images/reg.example/a/b:1", ``, 200, `"name":"reg.example/a/b:1"`},
		{"GET", "/v1/images/", ``, 404, `SBX-801`},
	} {
		res := plain(t, socket, tt.method, tt.path, tt.body)
		answer := whole(t, res)
		if res.StatusCode != tt.status || !strings.Contains(answer, tt.want) || !json.Valid([]byte(answer)) {
			t.Errorf("%s %s %.60s: got %d %.300s, want %d %s", tt.method, tt.path, tt.body, res.StatusCode, answer, tt.status, tt.want)
		}
		if failed := tt.status >= 400; failed != (res.Header.Get("Caisson-Code") != "") || failed != strings.HasPrefix(answer, `{"error":{"code":"SBX-`) {
			t.Errorf("%s %s: the error has another form: %v %.300s", tt.method, tt.path, res.Header, answer)
		}
	}
	if want := []string{"create n", "create m"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// TestRefusedHeaders: nothing is read that was not understood.
func TestRefusedHeaders(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{})
	for _, tt := range []struct {
		name, value, path string
		status            int
	}{
		{"Content-Type", "text/xml", "/v1/sandboxes", 415},
		{"Content-Type", "application/json; charset=utf-8", "/v1/cleanup", 200},
		{"Content-Type", "application/x-www-form-urlencoded", "/v1/cleanup", 200},
		{"Content-Encoding", "gzip", "/v1/sandboxes", 415},
		{"Accept", "image/png", "/v1/sandboxes/a/execs", 406},
		{"Accept", "image/png", "/v1/cleanup", 406},
		{"Accept", "text/html, application/*;q=0.5", "/v1/cleanup", 200},
		{"Accept", "text/event-stream, */*", "/v1/run", 200},
	} {
		res := plain(t, socket, "POST", tt.path, "{}", tt.name, tt.value)
		if answer := whole(t, res); res.StatusCode != tt.status {
			t.Errorf("%s: %s: %d %s, want %d", tt.name, tt.value, res.StatusCode, answer, tt.status)
		}
	}
}

// talks is a command with both streams, a gap and an exit code.
func talks(_ context.Context, _, _ string, o runtime.AttachOptions, rio runtime.IO) (*runtime.Result, error) {
	started(rio)
	if o.StdoutOffset == 0 {
		_, _ = rio.Stdout.Write([]byte("über"))
		_ = rio.Stdout.(runtime.Skipper).Skip(100)
	}
	_, _ = rio.Stdout.Write([]byte("end\xc3"))
	_, _ = rio.Stdout.Write([]byte("\xbc."))
	_, _ = rio.Stderr.Write([]byte{0xfe, 0xff})
	return &runtime.Result{ExitCode: 3}, nil
}

func TestLines(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{OnAttach: talks})
	res := plain(t, socket, "POST", "/v1/sandboxes/a/execs/1/attach", "")
	lines := strings.Split(strings.TrimSpace(whole(t, res)), "\n")
	want := []string{
		`{"started":{"sandbox_id":"id",`, `{"stdout":{"text":"über"}}`, `{"stdout":{"offset":5,"skipped":100}}`,
		`{"stdout":{"offset":105,"text":"end"}}`, `{"stdout":{"offset":108,"data":"ww=="}}`, `{"stdout":{"offset":109,"data":"vA=="}}`,
		`{"stdout":{"offset":110,"text":"."}}`, `{"stderr":{"data":"/v8="}}`, `{"exit":{"exit_code":3,`,
	}
	if !slices.EqualFunc(lines, want, strings.HasPrefix) || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%v\ngot  %q\nwant %q", res.Header, lines, want)
	}
}

// TestServerSentEvents: the ID of the last event is enough to go on.
func TestServerSentEvents(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{OnAttach: talks})
	path := "/v1/sandboxes/a/execs/1/attach?stdout_offset=0"
	res := plain(t, socket, "POST", path, "", "Accept", "text/event-stream")
	first := whole(t, res)
	if !strings.Contains(first, "id: 105.0\ndata: {\"stdout\":{\"offset\":5,\"skipped\":100}}\n\n") || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v\n%s", res.Header, first)
	}
	rest := whole(t, plain(t, socket, "POST", path, "", "Accept", "text/event-stream", "Last-Event-ID", "105.0"))
	if strings.Contains(rest, "über") || !strings.Contains(rest, "id: 111.0\n") || !strings.Contains(rest, "id: 111.2\ndata: {\"exit\"") {
		t.Errorf("gone on with:\n%s", rest)
	}
	if res := plain(t, socket, "POST", path, "", "Accept", "text/event-stream", "Last-Event-ID", "x"); res.StatusCode != 400 {
		t.Errorf("an ID of nobody: %s", res.Status)
	}
}

// TestErrorInAStream: an error before the first event has its status, a later one is the
// last line.
func TestErrorInAStream(t *testing.T) {
	broken := sbxerr.New(sbxerr.EngineDown, "fake.exec", "gone")
	for name, begin := range map[string]bool{"before": false, "after": true} {
		f := &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
			if begin {
				started(rio)
			}
			return nil, broken
		}}
		res := plain(t, servertest.Listen(t, f), "POST", "/v1/sandboxes/a/execs?attach=true", `{"exec":{"args":["x"]}}`)
		lines := strings.Split(strings.TrimSpace(whole(t, res)), "\n")
		if (res.StatusCode == 200) != begin || !strings.HasPrefix(lines[len(lines)-1], `{"error":{"code":"SBX-602","message":"gone"`) {
			t.Errorf("%s: %s %q", name, res.Status, lines)
		}
	}
}

// TestRawOutput: raw bytes end at a gap, which the next request is told about.
func TestRawOutput(t *testing.T) {
	f := &servertest.Fake{OnLogs: func(ctx context.Context, ref string, o runtime.LogOptions, stdout, stderr io.Writer) error {
		_, err := talks(ctx, ref, o.Exec, runtime.AttachOptions{StdoutOffset: o.StdoutOffset}, runtime.IO{Stdout: stdout, Stderr: stderr, Started: func(runtime.Info, runtime.ExecInfo) {}})
		return err
	}}
	socket := servertest.Listen(t, f)
	res := plain(t, socket, "GET", "/v1/sandboxes/a/execs/1/stdout?stdout_offset=105", "")
	if got := whole(t, res); got != "endü." {
		t.Errorf("got %q", got)
	}
	res = plain(t, socket, "GET", "/v1/sandboxes/a/execs/1/stdout", "")
	if data, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(data) != "über" {
		t.Errorf("over a gap: %q, %v", data, err)
	}
	f.OnLogs = func(_ context.Context, _ string, _ runtime.LogOptions, stdout, _ io.Writer) error {
		return stdout.(runtime.Skipper).Skip(100)
	}
	res = plain(t, socket, "GET", "/v1/sandboxes/a/execs/1/stdout", "")
	if answer := whole(t, res); !strings.Contains(answer, "from 0 to 99 are no longer kept") || !strings.Contains(answer, "stdout_offset=100") || res.StatusCode < 400 {
		t.Errorf("in a gap: %s %s", res.Status, answer)
	}
}

// TestRawInput: the body is the input, and close comes after it.
func TestRawInput(t *testing.T) {
	var got bytes.Buffer
	closed := false
	f := &servertest.Fake{OnInput: func(_ context.Context, ref, exec string, req runtime.InputRequest) (runtime.InputState, error) {
		if ref != "a" || exec != "7" || closed {
			return runtime.InputState{}, errors.New("astray")
		}
		got.Write(req.Data)
		closed = req.Close
		return runtime.InputState{Offset: int64(got.Len()), Closed: closed}, nil
	}}
	input := strings.Repeat("0123456789abcdef", 1<<16)
	res := plain(t, servertest.Listen(t, f), "PUT", "/v1/sandboxes/a/execs/7/input?close", input)
	if answer := whole(t, res); strings.TrimSpace(answer) != `{"offset":1048576,"closed":true}` || got.String() != input {
		t.Errorf("%s %s, %d bytes came", res.Status, answer, got.Len())
	}
}

// TestRawInputAgain: a body that is sent again with its offset is not taken twice.
func TestRawInputAgain(t *testing.T) {
	var got bytes.Buffer
	f := &servertest.Fake{OnInput: func(_ context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
		at := int64(got.Len())
		if req.Offset != nil {
			at = *req.Offset
		}
		got.Write(req.Data[min(int64(len(req.Data)), int64(got.Len())-at):])
		return runtime.InputState{Offset: int64(got.Len())}, nil
	}}
	socket := servertest.Listen(t, f)
	input := strings.Repeat("0123456789abcdef", 1<<15)
	send := func(path string) {
		t.Helper()
		if res := plain(t, socket, "PUT", path, input); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, res.Status, whole(t, res))
		}
	}
	send("/v1/sandboxes/a/execs/7/input?offset=0")
	send("/v1/sandboxes/a/execs/7/input?offset=0")
	if got.String() != input {
		t.Errorf("%d bytes came of %d that were sent twice", got.Len(), len(input))
	}
	send("/v1/sandboxes/a/execs/7/input") // without an offset, they are others
	if got.String() != input+input {
		t.Errorf("%d bytes came", got.Len())
	}
}

// TestRawInputOfAClosedCommand: a command that closes its input early drops the rest, as
// it does when all comes at once.
func TestRawInputOfAClosedCommand(t *testing.T) {
	calls := 0
	f := &servertest.Fake{OnInput: func(_ context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
		if calls++; *req.Offset > 4 {
			return runtime.InputState{}, sbxerr.New(sbxerr.Config, "fake.input", "past the bytes that it has")
		}
		return runtime.InputState{Offset: min(4, int64(len(req.Data))), Closed: len(req.Data) > 0}, nil
	}}
	res := plain(t, servertest.Listen(t, f), "PUT", "/v1/sandboxes/a/execs/7/input?offset=0&close", strings.Repeat("x", 1<<20))
	if answer := whole(t, res); strings.TrimSpace(answer) != `{"offset":4,"closed":true}` || calls != 2 {
		t.Errorf("%s %s after %d calls", res.Status, answer, calls)
	}
}

func TestRawFiles(t *testing.T) {
	f := &fakeFiles{content: strings.Repeat("content ", 100_000)}
	socket := serveDeps(t, server.Deps{Files: f})
	res := plain(t, socket, "GET", "/v1/sandboxes/box/files/tmp/a%20b%2Fc?length=9", "")
	if whole(t, res) != f.content || f.asked[0] != "/tmp/a b/c" || f.asked[2] != int64(9) || !strings.HasPrefix(res.Header.Get("Caisson-File"), `{"path":"/tmp/a b/c"`) {
		t.Errorf("%v %v", f.asked, res.Header)
	}
	res = plain(t, socket, "PUT", "/v1/sandboxes/box/files/p?mode=384&make_parents", f.content)
	if answer := whole(t, res); f.received != f.content || f.asked[0] != "/p" || *f.asked[1].(*uint32) != 0o600 || f.asked[2] != true {
		t.Errorf("%s %v", answer, f.asked)
	}
	f.err = sbxerr.New(sbxerr.FileAbsent, "fake.files", "no such file")
	res = plain(t, socket, "GET", "/v1/sandboxes/box/files/p", "")
	if answer := whole(t, res); res.StatusCode != 404 || !strings.Contains(answer, "SBX-212") {
		t.Errorf("%s %s", res.Status, answer)
	}
	f.err, f.left.LeftOut, f.left.Names = nil, 1, []string{"/p/a"}
	res = plain(t, socket, "GET", "/v1/sandboxes/box/archive/", "")
	if whole(t, res) != f.content || len(res.Trailer) != 2 {
		t.Errorf("trailer %v", res.Trailer)
	}
}

// TestFileHeader: whatever a name holds is in the header, which holds what clients take: the
// one of Node.js takes no DEL, and reads other bytes as Latin-1.
func TestFileHeader(t *testing.T) {
	socket := serveDeps(t, server.Deps{Files: &fakeFiles{content: "x"}})
	for escaped, name := range map[string]string{"a%7Fb": "a\x7fb", "%C3%BC": "ü", "%F0%9F%98%80": "😀", "%09%22%0A": "\t\"\n", "%C2%85": "\u0085", "plain": "plain"} {
		res := plain(t, socket, "GET", "/v1/sandboxes/box/files/"+escaped, "")
		whole(t, res)
		header := res.Header.Get("Caisson-File")
		var info struct{ Path string }
		if err := json.Unmarshal([]byte(header), &info); err != nil || info.Path != "/"+name || strings.Trim(header, asciiPrintable) != "" {
			t.Errorf("%q: %q, %v", name, header, err)
		}
	}
}

// asciiPrintable are the characters of a header that every client takes.
var asciiPrintable = func() (all string) {
	for c := ' '; c <= '~'; c++ {
		all += string(c)
	}
	return all
}()

// TestLineAtOnce: a line is with its reader before there are more.
func TestLineAtOnce(t *testing.T) {
	read := make(chan struct{})
	f := &servertest.Fake{OnExec: func(ctx context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		_, _ = rio.Stdout.Write([]byte("a line\n"))
		select {
		case <-read:
			return &runtime.Result{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	res := plain(t, servertest.Listen(t, f), "POST", "/v1/sandboxes/a/execs?attach=true", `{"exec":{"args":["x"]}}`)
	lines := bufio.NewScanner(res.Body)
	for range 2 {
		lines.Scan()
	}
	if lines.Text() != `{"stdout":{"text":"a line\n"}}` {
		t.Errorf("got %q", lines.Text())
	}
	close(read)
}

// deadlineRecorder has the deadlines that a server's writer has.
type deadlineRecorder struct{ *httptest.ResponseRecorder }

func (deadlineRecorder) SetWriteDeadline(time.Time) error { return nil }
func (deadlineRecorder) SetReadDeadline(time.Time) error  { return nil }

// FuzzPlain: no path, query or body makes a handler panic, and each error has the form.
func FuzzPlain(f *testing.F) {
	f.Add("GET", "/v1/sandboxes/a/files/%2e?offset=1&length=&x=%zz", "")
	f.Add("POST", "/v1/run?exec.tty.rows=1&stdin=x", `{"exec":{}}`)
	f.Add("PUT", "/v1/sandboxes/a/execs/1/input?close=x&offset=-1", "data")
	f.Add("POST", "/v1/policy/check?policy.allow=a&policy.allow=b&target.x=1", "null")
	h := server.New(server.Deps{Sandboxes: &servertest.Fake{}, Execs: &servertest.Fake{}, System: &servertest.Fake{}, Network: &servertest.Fake{}, Files: &fakeFiles{}})
	f.Fuzz(func(t *testing.T, method, path, body string) {
		req, err := http.NewRequest(method, "http://x/v1/"+strings.TrimPrefix(path, "/v1/"), strings.NewReader(body))
		if err != nil || strings.Contains(path, "/images") {
			return
		}
		w := deadlineRecorder{httptest.NewRecorder()}
		h.ServeHTTP(w, req)
		if w.Code >= 400 && !strings.HasPrefix(w.Body.String(), `{"error":{"code":"SBX-`) || strings.Contains(w.Body.String(), "SBX-001") {
			t.Errorf("%s %q: %d %q", method, path, w.Code, w.Body)
		}
	})
}

// TestOpenAPI: the daemon serves the description of its routes.
func TestOpenAPI(t *testing.T) {
	res := plain(t, servertest.Listen(t, &servertest.Fake{}), "GET", "/openapi.json", "")
	if answer := whole(t, res); res.StatusCode != 200 || !strings.Contains(answer, `"/v1/sandboxes/{ref}/execs/{exec_id}/output"`) || !json.Valid([]byte(answer)) {
		t.Errorf("%s %.200s", res.Status, answer)
	}
}

// TestAnswerBeforeOutput: a caller of a silent command has its answer, so that it can go
// on, and send input for instance.
func TestAnswerBeforeOutput(t *testing.T) {
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	f := &servertest.Fake{
		OnLogs: func(ctx context.Context, _ string, _ runtime.LogOptions, _, _ io.Writer) error { return silent(ctx) },
	}
	socket := servertest.Listen(t, f)
	for _, path := range []string{"/v1/sandboxes/a/execs/1/output?follow", "/v1/sandboxes/a/logs?follow"} {
		if res := plain(t, socket, "GET", path, ""); res.StatusCode != 200 { // it returns with the header
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// TestBodyThatNobodyReads: a call that is refused before its body was read does not break the next one,
// which a client may make by the same connection.
func TestBodyThatNobodyReads(t *testing.T) {
	tr := transport(servertest.Listen(t, &servertest.Fake{}), false)
	t.Cleanup(tr.CloseIdleConnections)
	for i := range 200 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/sandboxes/none/forward/none", strings.NewReader("input"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if said := whole(t, res); res.StatusCode/100 != 4 || !strings.Contains(said, "SBX-") {
			t.Fatalf("call %d: %s %s", i, res.Status, said)
		}
		_ = res.Body.Close()
	}
}
