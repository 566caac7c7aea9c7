package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

// Followers of the host go on over a killed daemon. No event comes twice, and each gap is
// told.
func TestFollowersSurviveTheDaemon(t *testing.T) {
	t.Parallel()
	d := harness.Start(t)
	box(t, d, "box", "--allow", "allowed.example")
	events := beside(t, d, "events", "--follow", "--since", "1h", "--filter", "type=exec.*")
	traffic := beside(t, d, "policy", "log", "--follow", "box")
	stats := beside(t, d, "stats", "-o", "json", "box")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := make(chan string, 1000)
	ready, watched := make(chan struct{}), make(chan error, 1)
	go func() {
		watched <- api.Dial(d.Socket).WatchFiles(ctx, &caissonv1.WatchFilesRequest{Ref: "box", Path: "/tmp"}, func() { close(ready) }, func(e *caissonv1.FileEvent) error {
			changes <- e.Type + " " + e.Path
			return nil
		})
	}()
	<-ready

	for i, name := range []string{"one", "two", "three"} {
		if i > 0 {
			d.Kill(t)
			d.Launch(t)
			awaitChange(t, changes, "overflow /tmp")
		}
		samples := strings.Count(stats.stdout(), "\n")
		d.Run(t, "exec", "box", "--", "sh", "-c", "touch /tmp/"+name+"; ! wget -q -O- http://"+name+".example")
		await(t, "all of "+name, func() bool {
			return strings.Count(events.stdout(), name+".example") >= 1 && strings.Contains(traffic.stdout(), name+".example") &&
				strings.Count(stats.stdout(), "\n") > samples
		})
		awaitChange(t, changes, "create /tmp/"+name)
	}
	for _, name := range []string{"one", "two", "three"} {
		started := 0
		for line := range strings.Lines(events.stdout()) {
			if strings.Contains(line, "exec.started") && strings.Contains(line, name+".example") {
				started++
			}
		}
		if started != 1 {
			t.Errorf("%d events of the start of %s:\n%s", started, name, events.stdout())
		}
	}
	if gaps := strings.Count(traffic.stderr(), "the connection to the daemon broke"); gaps != 2 {
		t.Errorf("the log of the traffic tells of %d gaps: %s", gaps, traffic.stderr())
	}
	// Without --since a follower begins now.
	later := beside(t, d, "events", "--follow", "--filter", "type=exec.*")
	await(t, "an event for the later follower", func() bool {
		d.Run(t, "exec", "box", "--", "true", "marker")
		return strings.Contains(later.stdout(), "marker")
	})
	if strings.Contains(later.stdout(), "one.example") || !strings.Contains(events.stdout(), "one.example") {
		t.Errorf("the later follower began with old events:\n%s", later.stdout())
	}
	cancel()
	<-watched
	d.Run(t, "rm", "--force", "box")
	for what, c := range map[string]*client{"policy log": traffic, "stats": stats} { // which end with the sandbox
		if code := c.end(t); code != 0 {
			t.Errorf("%s ended with %d: %s", what, code, c.stderr())
		}
	}
}

// awaitChange waits for a change, and passes over others.
func awaitChange(t *testing.T, changes <-chan string, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case c := <-changes:
			if c == want {
				return
			}
		case <-late:
			t.Fatalf("no change %q", want)
		}
	}
}
