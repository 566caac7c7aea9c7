package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// said is what a client of few words says to a server that works in the sandbox.
func said(lines ...string) string {
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"sh","version":"0"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	return hello + strings.Join(lines, "\n")
}

// bashLine is a line that calls bash.
func bashLine(id int, script, more string) string {
	command, _ := json.Marshal(script) // a string
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":{"command":%s%s}}}`, id, command, more)
}

// TestMCPInAPipe: a client that says all that it has to say and ends its output, as printf
// does, gets all answers: to calls, and to what is no call.
func TestMCPInAPipe(t *testing.T) {
	daemon.Run(t, "create", "--name", "piped")
	t.Cleanup(func() { daemon.Try("rm", "--force", "piped") })
	for range 8 {
		r := daemon.TryWith(said(bashLine(1, "sleep 0.2; echo done one", ""), "no message", bashLine(2, "echo done two", `,"timeout_ms":null`)), "mcp", "--sandbox", "piped")
		if r.Code != 0 || strings.Count(r.Stdout, "\n") != 4 {
			t.Fatalf("%+v", r)
		}
		for _, want := range []string{`"done one\n"`, `"done two\n"`, `"id":null`, "SBX-801"} {
			if !strings.Contains(r.Stdout, want) {
				t.Errorf("%s is not in %s", want, r.Stdout)
			}
		}
	}
}

// spoken is a server that lines are said to.
type spoken struct {
	server *exec.Cmd
	in     io.WriteCloser
	lines  *bufio.Scanner
	heard  map[string]string // the answers, by ID
}

// speak starts a server for a sandbox.
func speak(t *testing.T, name string) *spoken {
	t.Helper()
	s := &spoken{server: daemon.Command(t.Context(), "mcp", "--sandbox", name), heard: map[string]string{}}
	in, err := s.server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.server.Start(); err != nil {
		t.Fatal(err)
	}
	s.in, s.lines = in, bufio.NewScanner(out)
	s.lines.Buffer(nil, 1<<20)
	return s
}

func (s *spoken) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s.in, text); err != nil {
		t.Fatal(err)
	}
}

// answer waits for that to an ID.
func (s *spoken) answer(t *testing.T, id string) string {
	t.Helper()
	for s.heard[id] == "" {
		var a struct{ ID json.RawMessage }
		if !s.lines.Scan() {
			t.Fatalf("no answer to %s: %v", id, s.lines.Err())
		}
		if err := json.Unmarshal(s.lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		s.heard[string(a.ID)] = s.lines.Text()
	}
	return s.heard[id]
}

// TestMCPLinesThatAreNoMessage: after one the session goes on, with its commands in the background.
func TestMCPLinesThatAreNoMessage(t *testing.T) {
	daemon.Run(t, "create", "--name", "lines")
	t.Cleanup(func() { daemon.Try("rm", "--force", "lines") })
	s := speak(t, "lines")
	s.say(t, said(bashLine(1, "sleep 1003", `,"background":true`))+"\n")
	if a := s.answer(t, "1"); !strings.Contains(a, `"running"`) {
		t.Fatalf("%s", a)
	}
	s.say(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":`+"\n"+strings.Repeat("x", 17<<20)+"\n"+bashLine(3, "ps | grep -q '[s]leep 1003' && echo there", "")+"\n")
	if a := s.answer(t, "2"); !strings.Contains(a, "-32700") {
		t.Errorf("half a line: %s", a)
	}
	if a := s.answer(t, "null"); !strings.Contains(a, "longer than 16777216 bytes") {
		t.Errorf("a long line: %.200s", a)
	}
	if a := s.answer(t, "3"); !strings.Contains(a, `"stdout":"there\n"`) {
		t.Errorf("the command in the background: %s", a)
	}
	if err := errors.Join(s.in.Close(), s.server.Wait()); err != nil {
		t.Error(err)
	}
}
