package route_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
)

// What a route adds is the difference of the two.
func BenchmarkRequest(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"fine"}}],"usage":{"prompt_tokens":1}}`)
	}))
	b.Cleanup(up.Close)
	get := func(b *testing.B, c *http.Client, url string) {
		for b.Loop() {
			res, err := c.Get(url)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
				b.Fatal(res.Status, err)
			}
			_ = res.Body.Close()
		}
	}
	b.Run("direct", func(b *testing.B) { get(b, up.Client(), up.URL) })
	limits := map[budget.Scope]budget.Limit{budget.Sandbox: {Tokens: 1 << 50}, budget.Hour: {Micros: 1 << 50}}
	for what, r := range map[string]policy.Route{"route": plainRoute(), "budget": modelRoute(limits)} {
		b.Run(what, func(b *testing.B) {
			f := newFixture(b, up, r)
			go func() {
				for range f.uses { // nobody looks
				}
			}()
			get(b, f.client(b), "http://"+string(name)+"/v1/chat")
		})
	}
}

// An event of a stream is read by the client so much after the upstream wrote it.
func BenchmarkEvent(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano())
			_ = http.NewResponseController(w).Flush() // the client may be gone
			time.Sleep(time.Millisecond)              // or events would queue, and their wait be measured
		}
	}))
	b.Cleanup(up.Close)
	for what, r := range map[string]policy.Route{"route": plainRoute(), "model": modelRoute(nil)} {
		b.Run(what, func(b *testing.B) {
			res, err := newFixture(b, up, r).client(b).Get("http://" + string(name) + "/v1/chat")
			if err != nil {
				b.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			var took []float64
			for b.Loop() {
				for !strings.HasPrefix(lines.Text(), "data: ") || len(took) == 0 && lines.Text() == "" {
					if !lines.Scan() {
						b.Fatal(lines.Err())
					}
				}
				sent, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "data: "), 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, float64(time.Now().UnixNano()-sent)/1e3)
				lines.Scan()
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "µs-p50")
			b.ReportMetric(took[len(took)*99/100], "µs-p99")
		})
	}
}

// Requests of 16 clients at once by one route take so much of a core: the clients' and the
// upstream's part too.
func BenchmarkAtOnce(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }))
	b.Cleanup(up.Close)
	f := newFixture(b, up, plainRoute())
	go func() {
		for range f.uses { // nobody looks
		}
	}()
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(8)
	b.RunParallel(func(p *testing.PB) {
		c := f.client(b)
		for p.Next() {
			res, err := c.Get("http://" + string(name) + "/v1/chat")
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "core-at-1000/s")
}
