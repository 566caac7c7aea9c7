package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// http measures the plain routes over HTTP/1.1, as clients without a library of ours use
// them.
func (s *suite) http() {
	site := s.plainSite()
	box := site.create()
	defer site.mustRemove(box.Id)
	c := newHTTPClient(site)
	defer c.CloseIdleConnections()

	var execs, connects []time.Duration
	for range s.rounds * 10 {
		execs = append(execs, took(func() { c.post("/v1/sandboxes/"+box.Id+"/execs?wait=true", `{"exec":{"args":["/bin/true"]}}`) }))
		connects = append(connects, took(func() {
			if _, err := site.execTrue(s.t.Context(), box.Id); err != nil {
				s.t.Fatal(err)
			}
		}))
	}
	c.post("/v1/sandboxes/"+box.Id+"/execs?wait=true", fmt.Sprintf(`{"exec":{"shell":"dd if=/dev/zero bs=1M count=%d | tr '\\000' a > /tmp/letters"}}`, lettersMiB))
	var raw, lines, input []float64
	for range outputRounds {
		raw = append(raw, c.output(box.Id, "stdout"))
		lines = append(lines, c.output(box.Id, "output"))
		input = append(input, c.input(box.Id))
	}
	late := summarize(c.lineDelays(box.Id))
	stream := c.idleStreams(box.Id)

	_, rawMid := sortedEnds(raw)
	_, linesMid := sortedEnds(lines)
	_, inputMid := sortedEnds(input)
	s.r.Sessions = append(s.r.Sessions, Section{Name: "plain HTTP", Figures: []Figure{
		{"exec of true, p50", summarize(execs).P50, "ms"}, {"the same by Connect", summarize(connects).P50, "ms"},
		{"raw output, median", rawMid, "GB/s"}, {"output in lines of JSON, median", linesMid, "GB/s"}, {"raw input, median", inputMid, "GB/s"},
		{"a line in and out again, p50", late.P50, "ms"}, {"a line in and out again, p99", late.P99, "ms"},
		{"an idle stream", stream, "KB"},
	}})
	s.r.target(atMost("exec by plain HTTP, to Connect", ratioOfPairs(execs, connects), 1.25, "times"))
	s.r.target(atLeast("raw output", rawMid, 1, "GB/s"))
	s.r.target(atMost("a line in and out again over HTTP/1.1, p99", late.P99, 2, "ms"))
	s.r.target(atMost("an idle stream", stream, 100, "KB"))
}

const (
	httpMiB     = 256 // of output and input
	lettersMiB  = 16
	lineCount   = 500
	idleStreams = 100
)

func took(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// httpClient knows the routes and nothing else.
type httpClient struct {
	*http.Client
	site *site
}

func newHTTPClient(s *site) *httpClient {
	tr := &http.Transport{MaxIdleConnsPerHost: idleStreams, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.daemon.Socket)
	}}
	return &httpClient{&http.Client{Transport: tr}, s}
}

// do makes a call that must succeed, and returns its body.
func (c *httpClient) do(method, path string, body io.Reader) io.ReadCloser {
	req, err := http.NewRequestWithContext(c.site.t.Context(), method, "http://caisson"+path, body)
	if err != nil {
		c.site.t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		c.site.t.Fatal(err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		answer, _ := io.ReadAll(res.Body)
		c.site.t.Fatalf("%s %s: %s %s", method, path, res.Status, answer)
	}
	return res.Body
}

func (c *httpClient) post(path, body string) []byte {
	answer := c.do(http.MethodPost, path, strings.NewReader(body))
	defer answer.Close()
	data, err := io.ReadAll(answer)
	if err != nil {
		c.site.t.Fatal(err)
	}
	return data
}

// start starts a shell in the background and returns the path of its routes.
func (c *httpClient) start(box, script string) string {
	answer := c.post("/v1/sandboxes/"+box+"/execs", fmt.Sprintf(`{"exec":{"shell":%q,"stdin":true}}`, script))
	var line struct {
		Started struct{ Exec struct{ ID string } }
	}
	if err := json.Unmarshal(answer, &line); err != nil || line.Started.Exec.ID == "" {
		c.site.t.Fatalf("%s: %v", answer, err)
	}
	return "/v1/sandboxes/" + box + "/execs/" + line.Started.Exec.ID
}

// output returns GB of the command's bytes a second. They are letters, so a line of JSON
// is hardly longer than its bytes.
func (c *httpClient) output(box, route string) float64 {
	path := c.start(box, fmt.Sprintf("read go; for i in $(seq %d); do cat /tmp/letters; done", httpMiB/lettersMiB))
	body := c.do(http.MethodGet, path+"/"+route, nil)
	defer body.Close()
	begun := time.Now()
	c.post(path+"/input", `{"data":"Cg==","close":true}`)
	n, err := io.Copy(io.Discard, body)
	if err != nil || n < httpMiB<<20 {
		c.site.t.Fatalf("%d bytes of %d: %v", n, httpMiB<<20, err)
	}
	return round(float64(httpMiB<<20) / 1e9 / time.Since(begun).Seconds())
}

// input returns GB a second into a command that reads all.
func (c *httpClient) input(box string) float64 {
	path := c.start(box, "cat > /dev/null")
	begun := time.Now()
	c.do(http.MethodPut, path+"/input?close=true", bytes.NewReader(make([]byte, httpMiB<<20))).Close()
	return round(float64(httpMiB<<20) / 1e9 / time.Since(begun).Seconds())
}

// lineDelays sends lines to a command that returns each, and takes the time until it is
// back: no less than that from the write of a line to its reader.
func (c *httpClient) lineDelays(box string) []time.Duration {
	path := c.start(box, "cat")
	body := c.do(http.MethodPost, path+"/attach", nil)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Scan() // it is started
	var all []time.Duration
	for range lineCount {
		begun := time.Now()
		c.post(path+"/input", `{"data":"bGluZQo="}`)
		if !lines.Scan() || !strings.Contains(lines.Text(), "line") {
			c.site.t.Fatalf("no line came: %q, %v", lines.Text(), lines.Err())
		}
		all = append(all, time.Since(begun))
	}
	c.post(path+"/input", `{"close":true}`)
	return all
}

// idleStreams returns the KB that the daemon holds for each stream of a command that
// writes nothing.
func (c *httpClient) idleStreams(box string) float64 {
	path := c.start(box, "read go")
	time.Sleep(settle)
	before := memoryOf(c.site.t, c.site.daemon.PID()).PSS
	var open []io.Closer
	for range idleStreams {
		body := c.do(http.MethodPost, path+"/attach", nil)
		open = append(open, body)
		if _, err := bufio.NewReader(body).ReadString('\n'); err != nil { // it is started
			c.site.t.Fatal(err)
		}
	}
	time.Sleep(settle)
	after := memoryOf(c.site.t, c.site.daemon.PID()).PSS
	for _, body := range open {
		_ = body.Close()
	}
	c.post(path+"/input", `{"close":true}`)
	return round(max(0, after-before) * 1000 / idleStreams)
}
