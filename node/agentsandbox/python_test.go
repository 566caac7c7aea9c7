package agentsandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// request is one of a client, which keeps the path as it is written.
type request struct {
	method, url, body string
	header            map[string]string
}

func (q request) do(t *testing.T) (status int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), q.method, q.url, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

var asJSON = map[string]string{"Content-Type": "application/json"}

func command(t *testing.T, url, line string) (r executed) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		t.Fatal(err)
	}
	status, body, _ := request{"POST", url + "/execute", string(text), asJSON}.do(t)
	if err := json.Unmarshal([]byte(body), &r); status != 200 || err != nil {
		t.Fatalf("%q: %d %s, %v", line, status, body, err)
	}
	return r
}

func TestExecute(t *testing.T) {
	_, _, dir := serve(t, "python", "127.81.0.1")
	const url = "http://127.81.0.1:8888"
	for line, want := range map[string]executed{
		`echo "a  b" '$HOME' ; c`:                {"a  b $HOME ; c\n", "", 0},
		`sh -c 'echo out; echo err >&2; exit 3'`: {"out\n", "err\n", 3},
		`sh -c 'kill -9 $$'`:                     {"", "", -9},
		`pwd`:                                    {dir + "\n", "", 0},
		`printf '\377'`:                          {"\ufffd", "", 0},
		`echo 'a`:                                {"", "Failed to execute command: no closing quotation", 1},
		``:                                       {"", "Failed to execute command: the command is empty", 1},
	} {
		if got := command(t, url, line); got != want {
			t.Errorf("%q gave %+v", line, got)
		}
	}
	if got := command(t, url, "no-such-command"); got.ExitCode != 1 || !strings.HasPrefix(got.Stderr, "Failed to execute command: ") {
		t.Errorf("an absent command gave %+v", got)
	}
	if got := command(t, url, "head -c 9000000 /dev/zero"); got.ExitCode != 1 || !strings.Contains(got.Stderr, "8 MiB") {
		t.Errorf("much output gave %d bytes, %s", len(got.Stdout), got.Stderr)
	}
	if got := command(t, url, "head -c 8000000 /dev/zero"); got.ExitCode != 0 || len(got.Stdout) != 8_000_000 {
		t.Errorf("less output gave %d bytes, %s", len(got.Stdout), got.Stderr)
	}
	for _, c := range []struct {
		request
		want int
	}{
		{request{"GET", url + "/", "", nil}, 200},
		{request{"GET", url + "/execute", "", nil}, 405},
		{request{"POST", url + "/execute", `{"command":"true"}`, map[string]string{"Content-Type": "text/plain"}}, 415},
		{request{"POST", url + "/execute", `{"command":1}`, asJSON}, 422},
		{request{"POST", url + "/execute", `{}`, asJSON}, 422},
		{request{"POST", url + "/execute", `{"command":"` + strings.Repeat("x", largestCommand) + `"}`, asJSON}, 413},
		{request{"POST", url + "/execute", `{"command":"true"}`, map[string]string{"Content-Type": "application/json", "Origin": "http://other.example"}}, 403},
		{request{"GET", url + "/no", "", nil}, 404},
	} {
		if got, body, _ := c.do(t); got != c.want {
			t.Errorf("%s %s: %d, not %d: %s", c.method, c.url, got, c.want, body)
		}
	}
}

// TestOutputBudget: what commands of the node keep together is bounded, and given back.
func TestOutputBudget(t *testing.T) {
	b := newBudget()
	b.left.Store(10)
	one, two := buffer{budget: b}, buffer{budget: b}
	if _, err := one.Write(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Write(make([]byte, 4)); err == nil {
		t.Error("more than there is was taken")
	}
	if _, err := two.Write(make([]byte, 3)); err != nil {
		t.Error(err)
	}
	one.free()
	two.free()
	if left := b.left.Load(); left != 10 {
		t.Errorf("%d are left", left)
	}
}

func upload(t *testing.T, url, field, name, content string) (int, string) {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile(field, name)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, content)
	_ = w.Close()
	status, body, _ := request{"POST", url + "/upload", form.String(), map[string]string{"Content-Type": w.FormDataContentType()}}.do(t)
	return status, body
}

func TestPythonFiles(t *testing.T) {
	_, _, dir := serve(t, "python", "127.81.0.2")
	const url = "http://127.81.0.2:8888"
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for path, text := range map[string]string{outside: "secret", filepath.Join(dir, "there"): "x"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"out": "../outside", "all": "/", "in": "there", "loop": "loop", "none": "nothing"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if status, body := upload(t, url, "file", "sub/ä b.bin", "content\x00"); status != 200 || !strings.Contains(body, "uploaded successfully") {
		t.Errorf("upload: %d %s", status, body)
	}
	for _, c := range []struct {
		field, name string
		want        int
	}{{"other", "x", 422}, {"file", "", 422}, {"file", "../outside", 403}, {"file", "out", 403}, {"file", "all/x", 403}, {"file", "sub", 400}} {
		if status, body := upload(t, url, c.field, c.name, "y"); status != c.want {
			t.Errorf("upload of %q: %d %s", c.name, status, body)
		}
	}
	if text, err := os.ReadFile(outside); string(text) != "secret" {
		t.Errorf("outside is %q, %v", text, err)
	}
	for path, want := range map[string]string{
		"/download/sub%2F%C3%A4%20b.bin": "200 content\x00", "/download/there": "200 x", "/download/in": "200 x", "/download//there": "200 x",
		"/download/no": "404 {\"message\":\"File not found\"}\n", "/download/none": "404 {\"message\":\"File not found\"}\n", "/download/sub": "404 {\"message\":\"File not found\"}\n",
		"/exists/there": "200 {\"exists\":true,\"path\":\"there\"}\n", "/exists/no": "200 {\"exists\":false,\"path\":\"no\"}\n", "/exists/sub": "200 {\"exists\":true,\"path\":\"sub\"}\n",
		"/list/there": "404 {\"message\":\"Path is not a directory\"}\n",
	} {
		if status, body, _ := (request{"GET", url + path, "", nil}).do(t); fmt.Sprint(status, " ", body) != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	for _, path := range []string{"/download/out", "/download/%2e%2e%2Foutside", "/download/all/etc/passwd", "/list/all", "/exists/out", "/list/%2E%2E"} {
		if status, body, _ := (request{"GET", url + path, "", nil}).do(t); status != 403 {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, body, _ := (request{"GET", url + "/download/loop", "", nil}).do(t); status != 400 {
		t.Errorf("a loop: %d %q", status, body)
	}
	_, body, _ := request{"GET", url + "/list/", "", nil}.do(t)
	var rows []struct {
		Name, Type string
		Size       int64
		ModTime    float64 `json:"mod_time"`
	}
	if err := json.Unmarshal([]byte(body), &rows); err != nil || len(rows) != 5 { // loop and none lead nowhere
		t.Fatalf("the list is %s, %v", body, err)
	}
	for _, r := range rows {
		kind := map[string]string{"all": "directory", "sub": "directory"}[r.Name]
		if r.Type != kind && (kind != "" || r.Type != "file") || time.Since(time.UnixMicro(int64(r.ModTime*1e6))).Abs() > 24*365*50*time.Hour {
			t.Errorf("the list has %+v", r)
		}
	}
}

// TestPythonClientLeaves: its command ends with it, and not before.
func TestPythonClientLeaves(t *testing.T) {
	h, _, _ := serve(t, "python", "127.81.0.3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://127.81.0.3:8888/execute", strings.NewReader(`{"command":"sleep 1000"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		done <- err
	}()
	eventually(t, "a command runs", func() bool { return h.count() == 1 })
	select {
	case err := <-done:
		t.Fatalf("the call ended by itself: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	cancel()
	<-done
	eventually(t, "it has ended", func() bool { return h.count() == 0 })
}

// TestSlowClient: one that sends half of a body is not waited for.
func TestSlowClient(t *testing.T) {
	before := stall
	stall = 300 * time.Millisecond
	t.Cleanup(func() { stall = before })
	serve(t, "python", "127.81.0.4")
	conn, err := net.Dial("tcp", "127.81.0.4:8888")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") {
		t.Errorf("it got %q, %v", text, err)
	}
	if got := command(t, "http://127.81.0.4:8888", "sleep 0.6"); got.ExitCode != 0 {
		t.Errorf("a long command gave %+v", got)
	}
}
