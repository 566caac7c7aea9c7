package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestHealth: the health service of gRPC says what Ping says, of the whole and of each
// service.
func TestHealth(t *testing.T) {
	well := &servertest.Fake{}
	ill := &servertest.Fake{OnReady: func() error { return sbxerr.New(sbxerr.EngineDown, "a.b", "x") }}
	const check = "/grpc.health.v1.Health/Check"
	for _, c := range []struct {
		of      *servertest.Fake
		service string
		status  int
		answer  string
	}{
		{well, "", http.StatusOK, "SERVING"},
		{well, "caisson.v1.ExecService", http.StatusOK, "SERVING"},
		{ill, "", http.StatusOK, "NOT_SERVING"},
		{ill, "caisson.v1.ExecService", http.StatusOK, "NOT_SERVING"},
		{well, "caisson.v1.AbsentService", http.StatusNotFound, "SBX-801"},
	} {
		status, answer := post(t, c.of, check, `{"service":"`+c.service+`"}`)
		if status != c.status || !strings.Contains(answer, c.answer) || c.of == well && strings.Contains(answer, "NOT_") {
			t.Errorf("%q: %d %s, want %d %s", c.service, status, answer, c.status, c.answer)
		}
	}
}
