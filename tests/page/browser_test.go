package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// browser is a headless Chromium that tools/browser drives.
type browser struct {
	in  *json.Encoder
	out *json.Decoder
}

// order is what tools/browser reads, and report what it answers.
type order struct {
	Do       string `json:"do"`
	URL      string `json:"url,omitempty"`
	Selector string `json:"selector,omitempty"`
	Keys     string `json:"keys,omitempty"`
	Script   string `json:"script,omitempty"`
	File     string `json:"file,omitempty"`
	Width    int    `json:"width,omitempty"`
	Height   int    `json:"height,omitempty"`
	Scheme   string `json:"scheme,omitempty"`
}

type report struct {
	Value    json.RawMessage `json:"value"`
	Errors   []string        `json:"errors"`
	Requests []struct {
		URL      string `json:"url"`
		Referrer string `json:"referrer"`
	} `json:"requests"`
	Error string `json:"error"`
}

// patience is how long the page may take to show something on a busy machine.
const patience = 15 * time.Second

// openBrowser starts a browser of the size of a desk's, which ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	need.Tools(t, "chromium")
	cmd := exec.Command(need.Env(t, "CAISSON_BROWSER", "the driver of the browser: make browser"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser: %v", err)
		}
	})
	b := &browser{json.NewEncoder(in), json.NewDecoder(out)}
	b.look(t, 1400, 1000, "light")
	return b
}

func (b *browser) do(t *testing.T, o order) report {
	t.Helper()
	var r report
	if err := b.in.Encode(o); err != nil {
		t.Fatal(err)
	}
	if err := b.out.Decode(&r); err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	if r.Error != "" {
		t.Fatalf("%+v: %s\nthe page shows:\n%s", o, r.Error, b.text(t))
	}
	return r
}

func (b *browser) open(t *testing.T, url string) { t.Helper(); b.do(t, order{Do: "open", URL: url}) }

// click clicks on the middle of the element that an XPath names, once it is visible.
func (b *browser) click(t *testing.T, xpath string) {
	t.Helper()
	b.do(t, order{Do: "click", Selector: xpath})
}

func (b *browser) keys(t *testing.T, keys string) { t.Helper(); b.do(t, order{Do: "keys", Keys: keys}) }

func (b *browser) look(t *testing.T, width, height int, scheme string) {
	t.Helper()
	b.do(t, order{Do: "look", Width: width, Height: height, Scheme: scheme})
}

// shoot keeps a picture among the test's artifacts (go test -artifacts).
func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join(t.ArtifactDir(), name+".png")
	b.do(t, order{Do: "shot", File: file})
	if st, err := os.Stat(file); err != nil || st.Size() < 5000 {
		t.Errorf("the picture %s: %v", name, err)
	}
}

// eval returns the value of a script.
func eval[T any](t *testing.T, b *browser, script string) (v T) {
	t.Helper()
	r := b.do(t, order{Do: "eval", Script: script})
	if err := json.Unmarshal(r.Value, &v); err != nil {
		t.Fatalf("%s is %s: %v", script, r.Value, err)
	}
	return v
}

// text is what a person reads.
func (b *browser) text(t *testing.T) string {
	t.Helper()
	var r report
	if err := b.in.Encode(order{Do: "eval", Script: "document.body.innerText"}); err != nil {
		t.Fatal(err)
	}
	if err := b.out.Decode(&r); err != nil {
		t.Fatal(err)
	}
	var text string
	_ = json.Unmarshal(r.Value, &text) // a page that shows nothing
	return text
}

// await waits until the condition, in JavaScript, is true. One that fails is not yet.
func (b *browser) await(t *testing.T, what, condition string) {
	t.Helper()
	for end := time.Now().Add(patience); !eval[bool](t, b, "(() => { try { return Boolean("+condition+") } catch { return false } })()"); {
		if time.Now().After(end) {
			t.Fatalf("the page does not show %s within %s:\n%s", what, patience, b.text(t))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// section is, in JavaScript, the text of a labelled part of the page.
func section(label string) string {
	return fmt.Sprintf("(document.querySelector('[aria-label=%q]')?.innerText ?? '')", label)
}

// state is, in JavaScript, the state of the sandbox that is open.
const state = "document.querySelector('.title .pill')?.innerText"

// pageURL is what caisson page prints, and its parts.
func pageURL(t *testing.T, d *harness.Daemon) (whole, origin, token string) {
	t.Helper()
	whole = strings.TrimSpace(d.Run(t, "page").Stdout)
	u, err := url.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	token, found := strings.CutPrefix(u.Fragment, "token=")
	if !found || len(token) < 16 {
		t.Fatalf("caisson page printed %q", whole)
	}
	return whole, "http://" + u.Host, token
}

// checkQuiet fails if the browser complained, asked anybody else, or told the token or
// the page's URL to anybody.
func (b *browser) checkQuiet(t *testing.T, origin, token string) {
	t.Helper()
	r := b.do(t, order{Do: "seen"})
	for _, e := range r.Errors {
		if strings.HasPrefix(e, "network: ") && strings.Contains(e, "404 (Not Found) "+origin+"/v1/") {
			continue // a call about a sandbox that was removed meanwhile
		}
		t.Errorf("the browser complained: %s", e)
	}
	if len(r.Requests) < 10 {
		t.Errorf("only %d requests were seen", len(r.Requests))
	}
	for _, q := range r.Requests {
		if !strings.HasPrefix(q.URL, origin+"/") || strings.Contains(q.URL, token) && !strings.Contains(q.URL, "#token=") || q.Referrer != "" {
			t.Errorf("a request to %q with the referrer %q", q.URL, q.Referrer)
		}
	}
}
