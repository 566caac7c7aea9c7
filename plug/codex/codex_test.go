package codex_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/plug/codex"
)

type object = map[string]any

// session is a Codex that speaks to an executor.
type session struct {
	*testing.T
	in     *io.PipeWriter
	out    *bufio.Scanner
	ended  chan error
	lastID int
	events []object // notifications that came before an answer

	mu       sync.Mutex
	commands []apitest.Command
	outcome  apitest.Outcome
}

// begin starts an executor, and shakes hands.
func begin(t *testing.T) *session {
	s := start(t)
	s.ok("initialize", object{"clientName": "test"})
	s.line(`{"method":"initialized","params":{}}`)
	return s
}

func start(t *testing.T) *session {
	t.Helper()
	d := apitest.New(t)
	s := &session{T: t, ended: make(chan error, 1)}
	d.OnCommand = func(c apitest.Command) apitest.Outcome {
		if strings.Contains(strings.Join(c.Spec.Args, " "), "exec env -0") {
			return apitest.Outcome{Stdout: []byte("/bin/bash\nPATH=/bin\x00HOME=/home\x00API_KEY=k\x00")}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commands = append(s.commands, c)
		return s.outcome
	}
	client := d.Client()
	t.Cleanup(client.Close)
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	s.in, s.out = in, bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	spec := &caissonv1.SandboxSpec{Name: "box", Network: "allow", Allow: []string{"a.example"}, Workspace: &caissonv1.Workspace{Dir: "/w", Path: "/w"}}
	go func() {
		s.ended <- codex.Serve(t.Context(), codex.Options{Client: client, Spec: spec}, stdin, stdout)
		_ = stdout.Close() // a pipe's never fails
	}()
	t.Cleanup(func() { _ = in.Close() })
	return s
}

func (s *session) line(text string) {
	s.Helper()
	if _, err := io.WriteString(s.in, text+"\n"); err != nil {
		s.Fatal(err)
	}
}

func (s *session) next() (m object) {
	s.Helper()
	if !s.out.Scan() {
		s.Fatalf("the executor ended: %v", s.out.Err())
	}
	if err := json.Unmarshal(s.out.Bytes(), &m); err != nil {
		s.Fatal(err)
	}
	return m
}

// call returns the result of a call, or the code and the message of its error.
func (s *session) call(method string, params any) (result object, code int, message string) {
	s.Helper()
	s.lastID++
	b, err := json.Marshal(object{"id": s.lastID, "method": method, "params": params})
	if err != nil {
		s.Fatal(err)
	}
	s.line(string(b))
	for {
		m := s.next()
		if m["id"] == nil {
			s.events = append(s.events, m)
			continue
		}
		if m["id"] != float64(s.lastID) {
			s.Fatalf("%s: the answer is %v", method, m)
		}
		if e, ok := m["error"].(object); ok {
			return nil, int(e["code"].(float64)), e["message"].(string)
		}
		return m["result"].(object), 0, ""
	}
}

func (s *session) ok(method string, params any) object {
	s.Helper()
	result, code, message := s.call(method, params)
	if code != 0 {
		s.Fatalf("%s %v: %d %s", method, params, code, message)
	}
	return result
}

func (s *session) fails(want int, text, method string, params any) {
	s.Helper()
	if result, code, message := s.call(method, params); code != want || !strings.Contains(message, text) {
		s.Errorf("%s %v: %v, %d %q, want %d %q", method, params, result, code, message, want, text)
	}
}

// process is a process/start with some of its parameters changed.
func process(id string, changes ...object) object {
	p := object{
		"processId": id, "argv": []string{"make"}, "cwd": "file:///w", "env": object{"CI": "1"}, "tty": false, "pipeStdin": false, "arg0": nil, "sandbox": nil,
		"envPolicy": object{"inherit": "all", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": object{}, "includeOnly": []string{}},
	}
	for _, c := range changes {
		maps.Copy(p, c)
	}
	return p
}

func TestHandshake(t *testing.T) {
	s := start(t)
	s.fails(-32600, "before", "process/start", process("1"))
	s.fails(-32600, "no such session", "initialize", object{"resumeSessionId": "x"})
	info := s.ok("initialize", object{"clientName": "test"})["environmentInfo"].(object)
	if shell := info["shell"].(object); shell["path"] != "/bin/bash" || shell["name"] != "bash" || info["cwd"] != "file:///w" {
		t.Errorf("got %v", info)
	}
	s.fails(-32600, "before", "process/start", process("1"))
	s.line(`{"method":"initialized"}`)
	s.fails(-32600, "is initialized", "initialize", object{})
	s.fails(-32601, "nope", "nope", nil)
	s.ok("process/start", process("1"))
	_ = s.in.Close() // a pipe's never fails
	for s.out.Scan() {
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// TestBrokenLines: what is no message is answered, and the session goes on.
func TestBrokenLines(t *testing.T) {
	s := begin(t)
	for line, code := range map[string]int{
		`not JSON`: -32600, `[]`: -32600, `{"id":1}`: -32600, `{"id":1.5,"method":"fs/walk"}`: -32600, `{"id":{},"method":"fs/walk"}`: -32600,
		`{"id":1,"method":7}`: -32600, "\x00\xff": -32600, `{"id":1,"method":"fs/walk"`: -32600, `null`: -32600,
		`{"id":"a","method":"process/start"}`:                                             -32602,
		`{"id":"a","method":"process/start","params":[]}`:                                 -32602,
		`{"id":"a","method":"process/start","params":{"argv":"x"}}`:                       -32602,
		`{"id":"a","method":"process/write","params":{"processId":"1","chunk":"%"}}`:      -32602,
		`{"id":"a","method":"fs/readFile","params":{"path":"/bare"}}`:                     -32602,
		`{"id":"a","method":"fs/readFile","params":{"path":"file://host/x"}}`:             -32602,
		`{"id":"a","method":"fs/readFile","params":{"path":"file:///x%00y"}}`:             -32602,
		`{"id":"a","method":"fs/readFile","params":{"path":"file:///x%ff"}}`:              -32602,
		`{"id":"a","method":"process/signal","params":{"processId":"1","signal":"kill"}}`: -32602,
	} {
		s.line(line)
		m := s.next()
		want := any("a")
		if code == -32600 {
			want = float64(-1)
		}
		e, _ := m["error"].(object)
		if m["id"] != want || e["code"] != float64(code) || e["message"] == "" {
			t.Errorf("%q: got %v", line, m)
		}
	}
	s.line("")
	s.line(`{"method":"unknown/notification"}`)
	s.ok("process/terminate", object{"processId": "1"})
	go func() { _, _ = io.WriteString(s.in, strings.Repeat(" ", 65<<20)) }() // the executor does not read all of it
	if m := s.next(); m["error"] == nil {
		t.Errorf("a line without an end: %v", m)
	}
	if err := <-s.ended; err == nil {
		t.Error("the session goes on in the middle of a line")
	}
}

// TestEvents: the numbers have no hole, and can be read again while they are kept.
func TestEvents(t *testing.T) {
	s := begin(t)
	s.outcome = apitest.Outcome{Stdout: []byte(strings.Repeat("o", 20000)), Stderr: []byte("e"), ExitCode: 3}
	s.ok("process/start", process("1"))
	stdout := 0
	var last string
	for i := 1; last != "process/closed"; i++ {
		if len(s.events) == 0 {
			s.events = append(s.events, s.next())
		}
		params := s.events[0]["params"].(object)
		last, s.events = s.events[0]["method"].(string), s.events[1:]
		if params["seq"] != float64(i) || params["processId"] != "1" {
			t.Errorf("event %d: %v", i, params)
		}
		if params["stream"] == "stdout" {
			b, err := base64.StdEncoding.DecodeString(params["chunk"].(string))
			if err != nil {
				t.Fatal(err)
			}
			stdout += len(b)
		}
		if last == "process/exited" && (params["exitCode"] != float64(3) || params["sandboxDenied"] != false) {
			t.Errorf("got %v", params)
		}
	}
	if stdout != 20000 {
		t.Errorf("%d bytes of output", stdout)
	}
	r := s.ok("process/read", object{"processId": "1", "afterSeq": 1, "maxBytes": 1, "waitMs": 1000})
	if chunks := r["chunks"].([]any); len(chunks) != 1 || chunks[0].(object)["seq"] != float64(2) || r["nextSeq"] != float64(3) || r["closed"] != true {
		t.Errorf("got %v", r)
	}
	s.fails(-32600, "used before", "process/start", process("1"))
	s.fails(-32600, "unknown", "process/read", object{"processId": "2"})
	if r := s.ok("process/write", object{"processId": "1", "chunk": "YQ==", "writeId": "1"}); r["status"] != "unknownProcess" {
		t.Errorf("got %v", r)
	}
	if r := s.ok("process/terminate", object{"processId": "1"}); r["running"] != false {
		t.Errorf("got %v", r)
	}
	s.outcome = apitest.Outcome{Stdout: make([]byte, 2<<20)}
	s.ok("process/start", process("big"))
	for last != "process/closed big" {
		if len(s.events) == 0 {
			s.events = append(s.events, s.next())
		}
		last, s.events = fmt.Sprint(s.events[0]["method"], " ", s.events[0]["params"].(object)["processId"]), s.events[1:]
	}
	s.fails(-32600, "no longer kept", "process/read", object{"processId": "big", "afterSeq": 0})
}

func TestStartIsRefused(t *testing.T) {
	s := begin(t)
	for _, tt := range []struct {
		change object
		code   int
		text   string
	}{
		{object{"processId": ""}, -32602, "processId"},
		{object{"argv": []string{}}, -32602, "argv"},
		{object{"cwd": "/w"}, -32602, "URI"},
		{object{"arg0": "other"}, -32602, "arg0"},
		{object{"networkProxy": object{"proxy": object{}}}, -32602, "network"},
		{object{"managedNetwork": object{}}, -32602, "network"},
		{object{"envPolicy": object{"inherit": "some"}}, -32602, "inherit"},
		{object{"envPolicy": object{"inherit": "all", "exclude": []string{"["}}}, -32602, "pattern"},
		{object{"sandbox": object{}}, -32602, "permissions"},
		{object{"sandbox": object{"permissions": object{"type": "new"}}}, -32602, "type"},
		{object{"sandbox": managed("new")}, -32602, "network"},
		{object{"sandbox": managed("restricted", special("new", "read"))}, -32602, "special"},
		{object{"sandbox": managed("restricted", special("root", "new"))}, -32602, "access"},
		{object{"sandbox": managed("restricted")}, -32603, "hide"},
		{object{"sandbox": managed("restricted", special("root", "read"), object{"access": "deny", "path": object{"type": "glob_pattern", "pattern": "**/*.env"}})}, -32603, "pattern"},
	} {
		s.fails(tt.code, tt.text, "process/start", process(fmt.Sprint(tt.text, tt.code), tt.change))
	}
	if len(s.commands) > 0 {
		t.Errorf("ran %v", s.commands)
	}
}

func managed(network string, entries ...object) object {
	return object{"workspaceRoots": []string{"file:///w"}, "permissions": object{
		"type": "managed", "network": network, "file_system": object{"type": "restricted", "entries": entries},
	}}
}

func special(kind, access string) object {
	return object{"access": access, "path": object{"type": "special", "value": object{"kind": kind}}}
}

// TestVariants: a command whose policy asks for less gets a sandbox that has less.
func TestVariants(t *testing.T) {
	s := begin(t)
	for i, tt := range []struct {
		sandbox any
		box     string
	}{
		{nil, "box"},
		{object{"permissions": object{"type": "disabled"}}, "box"},
		{object{"permissions": object{"type": "external", "network": "restricted"}}, "box-off"},
		{managed("enabled", special("root", "read"), special("project_roots", "write")), "box"},
		{managed("restricted", special("root", "read")), "box-ro-off"},
		{managed("enabled", special("root", "write"), special("project_roots", "read")), "box-ro"},
	} {
		s.ok("process/start", process(fmt.Sprint(i), object{"sandbox": tt.sandbox}))
		if got := s.commands[i].Sandbox; got.Name != tt.box || strings.HasSuffix(tt.box, "-off") != (got.Network == "none") {
			t.Errorf("%v: ran in %s with network %s", tt.sandbox, got.Name, got.Network)
		}
	}
	s.ok("process/start", process("managed", object{"enforceManagedNetwork": true}))
	if got := s.commands[len(s.commands)-1].Sandbox.Name; got != "box-off" {
		t.Errorf("a managed network without rules: ran in %s", got)
	}
}

func TestEnvironment(t *testing.T) {
	s := begin(t)
	for i, tt := range []struct {
		policy any
		unset  string // as env(1) is told
		set    string
	}{
		{object{"inherit": "all", "ignoreDefaultExcludes": true}, "", "map[CI:1]"},
		{object{"inherit": "all"}, "env -u API_KEY ", "map[CI:1]"},
		{object{"inherit": "core", "ignoreDefaultExcludes": true, "set": object{"A": "2"}}, "env -u API_KEY ", "map[A:2 CI:1]"},
		{object{"inherit": "all", "exclude": []string{"ho*"}}, "env -u API_KEY -u HOME ", "map[CI:1]"},
		{object{"inherit": "all", "includeOnly": []string{"path"}, "set": object{"A": "2"}}, "env -u API_KEY -u HOME ", "map[CI:1]"},
		{object{"inherit": "none", "set": object{"PATH": "/x"}}, "env -u API_KEY -u HOME ", "map[CI:1 PATH:/x]"},
		{nil, "env -u API_KEY -u HOME -u PATH ", "map[CI:1]"},
	} {
		s.ok("process/start", process(fmt.Sprint(i), object{"envPolicy": tt.policy}))
		if got := s.commands[i].Spec; strings.Join(got.Args, " ") != tt.unset+"make" || fmt.Sprint(got.Env) != tt.set {
			t.Errorf("%v: ran %q with %v", tt.policy, got.Args, got.Env)
		}
	}
}
