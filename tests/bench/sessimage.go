package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/tests/regtest"
)

const (
	pullRounds  = 5
	pullLayers  = 5
	pullFiles   = 500     // of a layer
	pullFile    = 200_000 // bytes: 500 MB together
	prunedCount = 50      // images
	pruneRounds = 8
	pulledName  = "app:1" // of 500 MB
	sharingName = "app:2" // of the same layers and a small one
	smallFormat = "many:%d"
)

// pull measures the pull of an image of 500 MB beside ctr's, that of one which shares its
// layers, and what a prune costs a command that runs meanwhile.
func (s *suite) pull() {
	registry := regtest.Start(s.t)
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry.ServeHTTP(&counting{w, &sent}, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://") + "/"
	s.pushImages(registry)
	site := startSite(s.t, fmt.Sprintf("registries: {allowed: [%q]}\n", strings.TrimSuffix(host, "/")))
	sec := Section{Name: "pull", Runs: s.pullBoth(site, host)}
	s.must(site.daemon.Command(s.t.Context(), "image", "pull", host+pulledName))
	sent.Store(0)
	s.must(site.daemon.Command(s.t.Context(), "image", "pull", host+sharingName))
	sec.Figures = append(sec.Figures, Figure{"fetched for an image that shares all layers but one of 1 kB", round(float64(sent.Load()) / 1e3), "kB"})
	quiet, busy := s.prune(site, host)
	sec.Runs = append(sec.Runs,
		Run{Name: "caisson", What: "exec /bin/true over the API", Took: quiet.summary()},
		Run{Name: "caisson", What: fmt.Sprintf("the same while %d images are pruned", prunedCount), Took: busy.summary()})
	s.r.Sessions = append(s.r.Sessions, sec)
	s.r.targetRatio("pull of 500 MB, to ctr images pull", sec.Runs, "ctr", 1.2)
	s.r.target(atMost("exec while images are pruned, more than otherwise, p99", busy.summary().P99-quiet.summary().P99, 1, "ms"))
}

// counting counts what is sent.
type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// pushImages makes text of random digits, which shrinks to less than a half as programs do.
func (s *suite) pushImages(registry *regtest.Registry) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789abcdef"[random.IntN(16)]
		}
		return string(b)
	}
	var layers [][]byte
	for l := range pullLayers {
		var files []string
		for f := range pullFiles {
			files = append(files, fmt.Sprintf("l%d-%d", l, f), text(pullFile))
		}
		layers = append(layers, regtest.Tar(s.t, files...))
	}
	registry.Push(s.t, "app", "1", layers...)
	registry.Push(s.t, "app", "2", append(layers, regtest.Tar(s.t, "small", text(1000)))...)
	for i := range prunedCount {
		registry.Push(s.t, "many", fmt.Sprint(i), regtest.Tar(s.t, "file", text(100_000)))
	}
}

func (s *suite) must(cmd *exec.Cmd) time.Duration {
	took, err := timed(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return took
}

// pullBoth pulls in turns. What was pulled is removed before the next time.
func (s *suite) pullBoth(site *site, host string) []Run {
	caisson := Run{Name: "caisson", What: "caisson image pull of 500 MB in 5 layers, the whole process"}
	other := Run{Name: "ctr", What: "ctr images pull, same snapshotter, in a containerd as it comes"}
	st, err := s.plain().stock()
	if err != nil {
		other.Skipped = err.Error()
	}
	var ours, theirs times
	for range pullRounds {
		ours = append(ours, s.must(site.daemon.Command(s.t.Context(), "image", "pull", host+pulledName)))
		s.must(site.daemon.Command(s.t.Context(), "image", "rm", host+pulledName))
		if other.Skipped == "" {
			theirs = append(theirs, s.must(st.command("images", "pull", "--plain-http", host+pulledName)))
			s.must(st.command("images", "rm", "--sync", host+pulledName))
		}
	}
	caisson.Took = ours.summary()
	if other.Skipped == "" {
		other.Took, other.Ratio = theirs.summary(), ratioOfPairs(ours, theirs)
	}
	return []Run{caisson, other}
}

// prune runs commands before and while images go.
func (s *suite) prune(site *site, host string) (quiet, busy times) {
	box := site.create()
	defer site.mustRemove(box.Id)
	execTrue := func(took *times) {
		begin := time.Now()
		if _, err := site.execTrue(s.t.Context(), box.Id); err != nil {
			s.t.Fatal(err)
		}
		*took = append(*took, time.Since(begin))
	}
	for range pruneRounds {
		for i := range prunedCount {
			s.must(site.daemon.Command(s.t.Context(), "image", "pull", host+fmt.Sprintf(smallFormat, i)))
		}
		var warm times
		for range warmRounds {
			execTrue(&warm)
		}
		for range prunedCount {
			execTrue(&quiet)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.must(site.daemon.Command(s.t.Context(), "image", "prune", "--filter", "unused"))
		}()
		for pruning := true; pruning; {
			select {
			case <-done:
				pruning = false
			default:
				execTrue(&busy)
			}
		}
	}
	return quiet, busy
}
