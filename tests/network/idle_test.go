package network

import (
	"strings"
	"testing"
	"time"
)

// asleep reports whether s is paused because it was idle.
func (s sandbox) asleep(t *testing.T) bool {
	t.Helper()
	return strings.Contains(s.of.Run(t, "inspect", s.id).Stdout, `"paused_by": "idle"`)
}

// TestIdlePauseOfNetworks: what waits for an answer from outside is not idle, and a link wakes
// the sandbox to which it leads.
func TestIdlePauseOfNetworks(t *testing.T) {
	reaches(t, "db.example:5432")
	idle := []string{"--idle-timeout", "1s", "--on-idle", "pause"}
	db := create(t, append(idle, "--name", "sleepy", "--expose", insidePort)...)
	db.serve(t)
	app := create(t, append(idle, "--link", "db=sleepy:"+insidePort)...)
	waiting := create(t, append(idle, "--allow", "db.example:5432")...)
	waiting.held(t, "db.example:5432")
	for end := time.Now().Add(20 * time.Second); !db.asleep(t) || !app.asleep(t); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("they are not paused")
		}
	}
	if said := app.try("echo", "db:"+insidePort); !strings.Contains(said, "echo ping") {
		t.Errorf("by the link: %q", said)
	}
	if db.asleep(t) {
		t.Error("the link did not wake it")
	}
	time.Sleep(3 * time.Second) // in which the others were paused
	if waiting.asleep(t) {
		t.Error("one that waits for an answer is paused")
	}
}
