package agentsandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	processv1 "github.com/caisson-run/caisson/node/agentsandbox/process/v1"
)

func TestFiles(t *testing.T) {
	_, _, dir := serve(t, "sandboxd", "127.81.1.1")
	const url = "http://127.81.1.1:8080/v1"
	if err := os.Symlink("/", filepath.Join(dir, "all")); err != nil {
		t.Fatal(err)
	}
	code := func(code string) string { return `"code":"` + code + `"` }
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nof a form\r\n--b--\r\n"
	for _, c := range []struct {
		request
		status int
		want   string
	}{
		{request{"GET", url + "/health", "", nil}, 200, `"status":"ok"`},
		{request{"GET", url + "/metadata", "", nil}, 200, `{"env":{"SANDBOX_ID":"7"}}`},
		{request{"PUT", url + "/files/src/main.py?mode=0755", "print()", nil}, 204, ""},
		{request{"GET", url + "/files/src/main.py", "", nil}, 200, "print()"},
		{request{"GET", url + "/files/src%2Fmain.py", "", nil}, 200, "print()"},
		{request{"PUT", url + "/files/form", form, map[string]string{"Content-Type": "multipart/form-data; boundary=b"}}, 204, ""},
		{request{"GET", url + "/files/form", "", nil}, 200, "of a form"},
		{request{"PUT", url + "/files/empty", "", nil}, 204, ""},
		{request{"GET", url + "/files/empty", "", nil}, 200, ""},
		{request{"PUT", url + "/files/x?mode=755", "", nil}, 400, code("INVALID_ARGUMENT")},
		{request{"PUT", url + "/files/src", "", nil}, 400, code("INVALID_ARGUMENT")},
		{request{"PUT", url + "/files/", "", nil}, 400, code("INVALID_ARGUMENT")},
		{request{"PUT", url + "/files/all/tmp/x", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"GET", url + "/files/%2e%2e/x", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"GET", url + "/files/../../../x", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"GET", url + "/files/all", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"DELETE", url + "/files/%2e%2e%2fx?recursive=true", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"DELETE", url + "/files/all/tmp?recursive=true", "", nil}, 403, code("PERMISSION_DENIED")},
		{request{"GET", url + "/files//etc/passwd", "", nil}, 404, code("NOT_FOUND")},
		{request{"HEAD", url + "/files/no", "", nil}, 404, ""},
		{request{"DELETE", url + "/files/no", "", nil}, 404, code("NOT_FOUND")},
		{request{"DELETE", url + "/files/src", "", nil}, 409, code("CONFLICT")},
		{request{"DELETE", url + "/files/src?recursive=maybe", "", nil}, 400, code("INVALID_ARGUMENT")},
		{request{"DELETE", url + "/files/form", "", nil}, 204, ""},
		{request{"DELETE", url + "/files/", "", nil}, 409, code("CONFLICT")},
		{request{"POST", url + "/files/x", "", nil}, 405, ""},
		{request{"GET", url + "/no", "", nil}, 404, ""},
	} {
		got, body, _ := c.do(t)
		if got != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.url, got, body)
		}
	}
	if _, _, h := (request{"HEAD", url + "/files/src/main.py", "", nil}).do(t); h.Get("Content-Length") != "7" || h.Get("Last-Modified") == "" || h.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("HEAD gave %v", h)
	}
	_, body, h := request{"GET", url + "/files/src", "", nil}.do(t)
	var l struct {
		Path    string
		Entries []struct {
			Name, Type, Mode string
			Size             int64
			ModifiedAt       time.Time `json:"modified_at"`
		}
	}
	if err := json.Unmarshal([]byte(body), &l); err != nil || l.Path != "/src" || len(l.Entries) != 1 || h.Get("Content-Type") != "application/json" {
		t.Fatalf("the listing is %s, %v", body, err)
	}
	if e := l.Entries[0]; e.Name != "main.py" || e.Type != "file" || e.Mode != "0755" || e.Size != 7 || time.Since(e.ModifiedAt) > time.Hour {
		t.Errorf("the entry is %+v", e)
	}
	for _, path := range []string{"/files/all", "/files/src?recursive=true", "/files?recursive=true"} { // of a link, the link alone
		if got, body, _ := (request{"DELETE", url + path, "", nil}).do(t); got != 204 {
			t.Errorf("DELETE %s: %d %s", path, got, body)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// processes is a client of ProcessService.
type processes struct {
	*grpc.ClientConn
	t *testing.T
}

func connectTo(t *testing.T, target string, options ...grpc.DialOption) processes {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return processes{c, t}
}

func (p processes) call(method string, req, res any) codes.Code {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	return status.Code(p.Invoke(ctx, "/process.v1.ProcessService/"+method, req, res))
}

// stream is a command of Start.
type stream struct {
	grpc.ClientStream
	t              *testing.T
	id             int32
	stdout, stderr bytes.Buffer
}

func (p processes) start(ctx context.Context, req *processv1.StartRequest) *stream {
	p.t.Helper()
	c, err := p.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/process.v1.ProcessService/Start")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(c.SendMsg(req), c.CloseSend()); err != nil {
		p.t.Fatal(err)
	}
	s := &stream{ClientStream: c, t: p.t}
	if s.id = s.next().GetInit().GetProcessId(); s.id == 0 {
		p.t.Fatal("the first event is not init")
	}
	return s
}

func (s *stream) next() *processv1.StartResponse {
	s.t.Helper()
	m := &processv1.StartResponse{}
	if err := s.RecvMsg(m); err != nil {
		s.t.Fatal(err)
	}
	s.stdout.Write(m.GetStdout())
	s.stderr.Write(m.GetStderr())
	return m
}

// wrote reads until the output has a text.
func (s *stream) wrote(text string) {
	s.t.Helper()
	for !strings.Contains(s.stdout.String(), text) {
		s.next()
	}
}

// exit reads to the end.
func (s *stream) exit() int32 {
	s.t.Helper()
	for {
		if e := s.next().GetExit(); e != nil {
			if err := s.RecvMsg(&processv1.StartResponse{}); !errors.Is(err, io.EOF) {
				s.t.Errorf("after exit: %v", err)
			}
			return e.ExitCode
		}
	}
}

func config(args ...string) *processv1.ProcessConfig { return &processv1.ProcessConfig{Command: args} }

func TestProcessExecute(t *testing.T) {
	_, _, dir := serve(t, "sandboxd", "127.81.1.2")
	p := connectTo(t, "127.81.1.2:9090")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	sub, up := "sub", "../.."
	for _, c := range []struct {
		*processv1.ProcessConfig
		want string
	}{
		{config("/bin/sh", "-c", "echo out; echo err >&2; exit 5"), "OK 5 out\n err\n"},
		{&processv1.ProcessConfig{Command: []string{"sh", "-c", "echo $A; pwd"}, EnvVars: map[string]string{"A": "b"}, Cwd: &sub}, "OK 0 b\n" + dir + "/sub\n "},
		{config("pwd"), "OK 0 " + dir + "\n "},
		{config("sh", "-c", "kill -9 $$"), "OK -1  "},
		{&processv1.ProcessConfig{Command: []string{"true"}, Cwd: &up}, "PermissionDenied 0  "},
		{config(), "InvalidArgument 0  "},
		{config("no-such-command"), "Internal 0  "},
		{config("head", "-c", "9000000", "/dev/zero"), "ResourceExhausted 0  "},
	} {
		r := &processv1.ExecuteResponse{}
		code := p.call("Execute", &processv1.ExecuteRequest{Config: c.ProcessConfig}, r)
		if got := fmt.Sprintf("%s %d %s %s", code, r.ExitCode, r.Stdout, r.Stderr); got != c.want {
			t.Errorf("%q gave %q", c.Command, got)
		}
	}
}

func TestProcessStart(t *testing.T) {
	h, _, _ := serve(t, "sandboxd", "127.81.1.3")
	p := connectTo(t, "127.81.1.3:9090")
	s := p.start(t.Context(), &processv1.StartRequest{Config: config("sh", "-c", "echo ready >&2; cat; echo end; exit 4")})
	for _, text := range []string{"one\n", "two\n"} {
		if code := p.call("WriteStdin", &processv1.WriteStdinRequest{ProcessId: s.id, Payload: &processv1.WriteStdinRequest_Input{Input: []byte(text)}}, &processv1.WriteStdinResponse{}); code != codes.OK {
			t.Fatal(code)
		}
		s.wrote(text)
	}
	eof := &processv1.WriteStdinRequest{ProcessId: s.id, Payload: &processv1.WriteStdinRequest_Eof{Eof: &emptypb.Empty{}}}
	if code := p.call("WriteStdin", eof, &processv1.WriteStdinResponse{}); code != codes.OK {
		t.Fatal(code)
	}
	if code := s.exit(); code != 4 || s.stdout.String() != "one\ntwo\nend\n" || s.stderr.String() != "ready\n" {
		t.Errorf("it ended with %d: %q %q", code, &s.stdout, &s.stderr)
	}
	for method, req := range map[string]any{
		"WriteStdin": eof, "SendSignal": &processv1.SendSignalRequest{ProcessId: s.id, Signal: processv1.Signal_SIGNAL_SIGTERM}, "ResizeTTY": &processv1.ResizeTTYRequest{ProcessId: s.id, Cols: 1, Rows: 1},
	} {
		if code := p.call(method, req, &emptypb.Empty{}); code != codes.NotFound {
			t.Errorf("%s of one that ended gave %s", method, code)
		}
	}
	if n := h.count(); n != 0 {
		t.Errorf("%d commands are left", n)
	}
}

func TestProcessSignals(t *testing.T) {
	serve(t, "sandboxd", "127.81.1.4")
	p := connectTo(t, "127.81.1.4:9090")
	for signal, want := range map[processv1.Signal]int32{processv1.Signal_SIGNAL_SIGINT: 12, processv1.Signal_SIGNAL_SIGTERM: 15, processv1.Signal_SIGNAL_SIGKILL: -1} {
		s := p.start(t.Context(), &processv1.StartRequest{Config: config("sh", "-c", `trap "exit 12" INT; trap "exit 15" TERM; echo ready; while :; do sleep 0.05; done`)})
		s.wrote("ready")
		if code := p.call("SendSignal", &processv1.SendSignalRequest{ProcessId: s.id}, &processv1.SendSignalResponse{}); code != codes.InvalidArgument {
			t.Errorf("no signal gave %s", code)
		}
		if code := p.call("SendSignal", &processv1.SendSignalRequest{ProcessId: s.id, Signal: signal}, &processv1.SendSignalResponse{}); code != codes.OK {
			t.Fatal(code)
		}
		if got := s.exit(); got != want {
			t.Errorf("%s: it ended with %d", signal, got)
		}
	}
}

func TestProcessTerminal(t *testing.T) {
	h, _, _ := serve(t, "sandboxd", "127.81.1.5")
	p := connectTo(t, "127.81.1.5:9090")
	for _, c := range []struct {
		pty        *processv1.PTY
		cols, rows uint32
		want       codes.Code
	}{{&processv1.PTY{Cols: 80, Rows: 24}, 100, 30, codes.OK}, {&processv1.PTY{}, 0, 1, codes.InvalidArgument}, {nil, 80, 24, codes.FailedPrecondition}} {
		s := p.start(t.Context(), &processv1.StartRequest{Config: config("cat"), Pty: c.pty})
		if code := p.call("ResizeTTY", &processv1.ResizeTTYRequest{ProcessId: s.id, Cols: c.cols, Rows: c.rows}, &processv1.ResizeTTYResponse{}); code != c.want {
			t.Errorf("%v: %s", c, code)
		}
		p.call("WriteStdin", &processv1.WriteStdinRequest{ProcessId: s.id, Payload: &processv1.WriteStdinRequest_Eof{}}, &processv1.WriteStdinResponse{})
		s.exit()
	}
	if len(h.sizes) != 1 || h.sizes[0].Cols != 100 || h.sizes[0].Rows != 30 {
		t.Errorf("the sizes are %v", h.sizes)
	}
}

// TestProcessClientLeaves: commands end with the stream, the connection or the deadline.
func TestProcessClientLeaves(t *testing.T) {
	h, _, _ := serve(t, "sandboxd", "127.81.1.6")
	sleep := config("sleep", "1000")
	for name, leave := range map[string]func(processes){
		"the stream": func(p processes) {
			ctx, cancel := context.WithCancel(t.Context())
			p.start(ctx, &processv1.StartRequest{Config: sleep})
			cancel()
		},
		"the connection": func(p processes) { p.start(t.Context(), &processv1.StartRequest{Config: sleep}); _ = p.Close() },
		"the deadline": func(p processes) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := p.Invoke(ctx, "/process.v1.ProcessService/Execute", &processv1.ExecuteRequest{Config: sleep}, &processv1.ExecuteResponse{})
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("the deadline gave %v", err)
			}
		},
	} {
		leave(connectTo(t, "127.81.1.6:9090"))
		eventually(t, "the end after that of "+name, func() bool { return h.count() == 0 })
	}
	if h.last != 3 {
		t.Errorf("%d commands ran", h.last)
	}
}
