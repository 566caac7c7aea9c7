package api

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// protocols serves a socket whose answers say over which protocol the request
// came, and holds back those that ask for it until release is closed.
func protocols(t *testing.T) (socket string, release chan struct{}) {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson") // an address holds 107 bytes only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, release = filepath.Join(dir, "s"), make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
		w.Header().Set("Major", strconv.Itoa(r.ProtoMajor))
	}))
	srv.Listener.Close()
	if srv.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return socket, release
}

// A call of one message has a connection of its own, a stream shares one, and
// many calls that wait leave room for more.
func TestTransport(t *testing.T) {
	socket, release := protocols(t)
	tr := newTransport(Options{Socket: socket})
	defer tr.closeIdle()
	major := func(path string, length int64) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://caisson"+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		res.Body.Close()
		res.Body.Close() // is counted once
		return res.Header.Get("Major")
	}
	if got := major("/", 1); got != "1" {
		t.Errorf("one message went over HTTP/%s", got)
	}
	if got := major("/", -1); got != "2" {
		t.Errorf("a stream went over HTTP/%s", got)
	}
	var waiting sync.WaitGroup
	var mu sync.Mutex
	count := map[string]int{}
	for range maxSingle + 8 {
		waiting.Go(func() {
			got := major("/wait", 1)
			mu.Lock()
			defer mu.Unlock()
			count[got]++
		})
	}
	for tr.busy.Load() < maxSingle {
		if t.Context().Err() != nil {
			t.Fatal("they did not start")
		}
	}
	close(release)
	waiting.Wait()
	if count["1"] < maxSingle || count["1"]+count["2"] != maxSingle+8 || tr.busy.Load() != 0 {
		t.Errorf("calls by protocol: %v; %d are still counted", count, tr.busy.Load())
	}
}
