package integration

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

func dial(t *testing.T) *api.Client {
	t.Helper()
	c := api.Dial(daemon.Socket)
	t.Cleanup(func() { c.Close() })
	return c
}

// A range of a file is read without the rest of it.
func TestReadRanges(t *testing.T) {
	box(t, daemon, "ranges")
	c := dial(t)
	content := random(1_000_000)
	if _, err := c.WriteFile(t.Context(), &caissonv1.WriteFileHeader{Ref: "ranges", Path: "/tmp/f"}, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ offset, length, from, to int64 }{
		{0, 0, 0, 1_000_000}, {0, 1, 0, 1}, {10, 300_000, 10, 300_010}, {999_999, 5, 999_999, 1_000_000}, {999_990, 0, 999_990, 1_000_000},
		{1_000_000, 0, 1_000_000, 1_000_000}, {5_000_000, 10, 1_000_000, 1_000_000}, // past the end there is nothing
	} {
		var got bytes.Buffer
		info, err := c.ReadFile(t.Context(), &caissonv1.ReadFileRequest{Ref: "ranges", Path: "/tmp/f", Offset: r.offset, Length: r.length}, &got)
		if err != nil || info.SizeBytes != 1_000_000 || !bytes.Equal(got.Bytes(), content[r.from:r.to]) {
			t.Errorf("%d bytes from %d on: %d bytes of %v, %v", r.length, r.offset, got.Len(), info, err)
		}
	}
	for _, bad := range []*caissonv1.ReadFileRequest{{Offset: -1}, {Length: -1}} {
		bad.Ref, bad.Path = "ranges", "/tmp/f"
		if _, err := c.ReadFile(t.Context(), bad, new(bytes.Buffer)); !errors.Is(err, sbxerr.Code("SBX-801")) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// watched is a watch that goes on beside the test.
type watched struct {
	events chan *caissonv1.FileEvent
	done   chan error
	stop   context.CancelFunc
}

// watchFiles returns when changes are reported.
func watchFiles(t *testing.T, c *api.Client, req *caissonv1.WatchFilesRequest) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := watched{events: make(chan *caissonv1.FileEvent, 1000), done: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	go func() {
		w.done <- c.WatchFiles(ctx, req, func() { close(ready) }, func(e *caissonv1.FileEvent) error { w.events <- e; return nil })
	}()
	select {
	case <-ready:
	case err := <-w.done:
		t.Fatalf("the watch ended: %v", err)
	}
	return w
}

// until returns the events up to the one that is given.
func (w watched) until(t *testing.T, last string) (got []string) {
	t.Helper()
	for !slices.Contains(got, last) {
		select {
		case e := <-w.events:
			if line := e.Type + " " + e.Path; len(got) == 0 || got[len(got)-1] != line {
				got = append(got, line)
			}
		case err := <-w.done:
			t.Fatalf("the watch ended with %v after %q", err, got)
		case <-time.After(20 * time.Second):
			t.Fatalf("%q did not come, but %q", last, got)
		}
	}
	return got
}

// Changes inside are told as they happen, also below directories that come
// later, until the caller leaves or the sandbox ends.
func TestWatchFiles(t *testing.T) {
	box(t, daemon, "watch")
	c := dial(t)
	change := func(script string) { daemon.Run(t, "exec", "watch", "--", "sh", "-c", "cd /tmp/w; "+script) }
	daemon.Run(t, "exec", "watch", "--", "mkdir", "-p", "/tmp/w/deep")
	all := watchFiles(t, c, &caissonv1.WatchFilesRequest{Ref: "watch", Path: "/tmp/w", Recursive: true})
	flat := watchFiles(t, c, &caissonv1.WatchFilesRequest{Ref: "watch", Path: "/tmp/w"})
	change("echo a > f")
	all.until(t, "write /tmp/w/f")
	change("echo b > deep/g; chmod 600 f; mv f h; rm h; touch end")
	got := all.until(t, "create /tmp/w/end")
	for _, want := range []string{"create /tmp/w/deep/g", "write /tmp/w/deep/g", "chmod /tmp/w/f", "rename /tmp/w/f", "create /tmp/w/h", "remove /tmp/w/h"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not among %q", want, got)
		}
	}
	for _, line := range flat.until(t, "create /tmp/w/end") {
		if line == "create /tmp/w/deep/g" {
			t.Error("a watch of one directory tells of those below it")
		}
	}
	change("mkdir new; sleep 0.2; touch new/late")
	all.until(t, "create /tmp/w/new/late")
	flat.stop()
	if err := <-flat.done; !errors.Is(err, sbxerr.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	err := c.WatchFiles(t.Context(), &caissonv1.WatchFilesRequest{Ref: "watch", Path: "/tmp/none"}, nil, nil)
	if !errors.Is(err, sbxerr.Code("SBX-212")) {
		t.Errorf("a watch of nothing: %v", err)
	}
	daemon.Run(t, "rm", "--force", "watch")
	select {
	case err := <-all.done:
		if err == nil {
			t.Error("the watch of a sandbox that ended tells of no end")
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch outlives its sandbox")
	}
	daemon.AwaitNoSandbox(t)
}
