package codex_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/caisson-run/caisson/api/apitest"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/plug/codex"
)

// TestSessionEnds: nobody can come back to a session whose time without a connection is
// over. Before that, one can.
func TestSessionEnds(t *testing.T) {
	client := apitest.New(t).Client()
	t.Cleanup(client.Close)
	spec := &caissonv1.SandboxSpec{Name: "box", Workspace: &caissonv1.Workspace{Dir: "/w", Path: "/w"}}
	for _, tt := range []struct {
		detached time.Duration
		back     bool
	}{{time.Hour, true}, {time.Millisecond, false}} {
		h := codex.NewHandler(codex.Options{Client: client, Spec: spec, Detached: tt.detached}, "token")
		server := httptest.NewServer(h)
		url := strings.Replace(server.URL, "http", "ws", 1) + "?token=token"
		id, _ := greet(t, url, nil)["sessionId"].(string)
		if id == "" {
			t.Fatal("no session")
		}
		back := greet(t, url, id) != nil
		for deadline := time.Now().Add(5 * time.Second); back != tt.back && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			back = greet(t, url, id) != nil
		}
		if back != tt.back {
			t.Errorf("after %v: came back %v", tt.detached, back)
		}
		server.Close()
		h.Close()
	}
}

// greet dials, and returns the answer to initialize; nil where it is refused.
func greet(t *testing.T, url string, session any) object {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), url, nil) //nolint:bodyclose // it has none
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	var answer struct{ Result object }
	err = wsjson.Write(t.Context(), ws, object{"id": 1, "method": "initialize", "params": object{"resumeSessionId": session}})
	if err == nil {
		err = wsjson.Read(t.Context(), ws, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Result
}
