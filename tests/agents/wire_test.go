package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record the sessions of real clients, and the answers to them")

// wireSession is a session of an MCP client: its own messages, and the answers to them.
type wireSession struct {
	Sent     []json.RawMessage
	Answered []json.RawMessage
}

func wireFile(client string) string { return filepath.Join("testdata/wire", client+".json") }

// recorded is a configuration whose client talks to the server through tee. After the
// test, -update keeps the client's messages.
func recorded(t *testing.T, client, config string) string {
	t.Helper()
	if !*update {
		return config
	}
	var c struct {
		Servers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "sent")
	s := c.Servers["caisson"]
	s.Command, s.Args = "/bin/sh", append([]string{"-c", `tee "$0" | "$@"`, log, s.Command}, s.Args...)
	c.Servers["caisson"] = s
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lines, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		var session wireSession
		for line := range bytes.Lines(lines) {
			session.Sent = append(session.Sent, line)
		}
		session.write(t, client)
	})
	return string(b)
}

func (s wireSession) write(t *testing.T, client string) {
	t.Helper()
	b, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(wireFile(client), append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// varying is the part of an answer that differs from run to run.
var varying = regexp.MustCompile(`duration_ms\\?":\d+|"version":"[^"]*"|\d+ ms\b`)

// stable is an answer without what differs from run to run.
func stable(answer string) json.RawMessage {
	return json.RawMessage(varying.ReplaceAllStringFunc(answer, func(s string) string {
		switch {
		case strings.HasSuffix(s, " ms"):
			return "0 ms"
		case strings.HasPrefix(s, `"version"`):
			return `"version":"0"`
		}
		return strings.TrimRight(s, "0123456789") + "0"
	}))
}

// answers sends the messages of a session to a server of its own, and returns the lines
// that come until each request has its answer.
func (s wireSession) answers(t *testing.T, name string) (list []json.RawMessage) {
	t.Helper()
	t.Cleanup(func() { daemon.Try("rm", "--force", name) })
	server := daemon.Command(t.Context(), "mcp", "--sandbox", name, "--ensure")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for _, message := range s.Sent {
		var request, answer struct {
			ID     json.RawMessage
			Method string
		}
		var line bytes.Buffer
		if err := json.Compact(&line, message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, line.String()+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(message, &request); err != nil {
			t.Fatal(err)
		}
		// A subscription is acknowledged, and answered at its end only.
		listens := request.Method == "subscriptions/listen"
		for request.ID != nil && string(answer.ID) != string(request.ID) && (!listens || answer.Method != "notifications/subscriptions/acknowledged") {
			if !lines.Scan() {
				t.Fatalf("no answer to %s: %v", line.Bytes(), lines.Err())
			}
			if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
				t.Fatalf("%v: %s", err, lines.Bytes())
			}
			list = append(list, stable(lines.Text()))
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	return list
}

// TestRecordedSessions replays sessions of real clients without them: each answer is the
// one that the client got.
func TestRecordedSessions(t *testing.T) {
	for _, client := range []string{"claude", "gemini"} {
		t.Run(client, func(t *testing.T) {
			compareWire(t, client, func(s wireSession) []json.RawMessage { return s.answers(t, "wire-"+client) })
		})
	}
}

// compareWire replays a session, and compares the answers with those that are recorded.
func compareWire(t *testing.T, name string, replay func(wireSession) []json.RawMessage) {
	t.Helper()
	b, err := os.ReadFile(wireFile(name))
	if err != nil {
		t.Fatal(err)
	}
	var session wireSession
	if err := json.Unmarshal(b, &session); err != nil {
		t.Fatal(err)
	}
	answers := replay(session)
	if *update {
		session.Answered = answers
		session.write(t, name)
		return
	}
	if len(answers) != len(session.Answered) || len(answers) < 2 {
		t.Fatalf("%d answers, recorded are %d", len(answers), len(session.Answered))
	}
	for i, got := range answers {
		var want bytes.Buffer
		if err := json.Compact(&want, session.Answered[i]); err != nil {
			t.Fatal(err)
		}
		if string(got) != want.String() {
			t.Errorf("answer %d:\ngot  %s\nwant %s", i, got, want.Bytes())
		}
	}
}
