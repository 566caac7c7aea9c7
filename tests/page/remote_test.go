package page

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestPageOverTLS: who enters a key sees the sandboxes of its user alone, and works with them; a
// key that does not count, and one that is removed, lock the page.
func TestPageOverTLS(t *testing.T) {
	d := harness.StartRemote(t, ", page: true")
	d.Run(t, "create", "--name", "of-root")
	key := d.MakeKey(t, "ann", "--as", "54321")
	id := strings.TrimSpace(d.User(t, 54321).Run(t, "create", "--name", "of-ann").Stdout)

	b := openBrowser(t)
	origin := "https://" + d.Address
	b.open(t, origin)
	b.await(t, "that it wants a key", "document.body.innerText.includes('needs a key')")
	enter := func(key string) {
		b.click(t, "//input")
		b.keys(t, key)
		b.click(t, button("Open"))
	}
	enter("csn_wrong")
	b.await(t, "that the key is wrong", "document.body.innerText.includes('SBX-810')")
	enter(key)
	b.await(t, "the sandbox", "document.body.innerText.includes('of-ann')")
	b.await(t, "that it is live", "document.querySelector('[role=status]').innerText === 'live'")
	if strings.Contains(b.text(t), "of-root") {
		t.Error("another user's sandbox is shown")
	}
	b.click(t, row("of-ann"))
	b.click(t, button("Terminal"))
	b.await(t, "the terminal", "document.querySelector('.xterm-helper-textarea')")
	time.Sleep(time.Second)
	b.keys(t, "echo $((40+2))-by-key\r")
	b.await(t, "what a command says", "document.querySelector('.xterm').innerText.includes('42-by-key')")
	b.click(t, button("Pause"))
	b.await(t, "that it is paused", state+" === 'paused'")
	if got := stateOf(t, d.Daemon, id); got != "paused" {
		t.Errorf("the sandbox is %s", got)
	}
	d.Run(t, "key", "rm", "ann")
	b.await(t, "that the key is gone", "document.body.innerText.includes('or no longer')")
}

// TestPageOverTLSIsAsked: without listen.page the address of the API has no page, and with it
// files need no key, calls do.
func TestPageOverTLSIsAsked(t *testing.T) {
	for _, on := range []bool{false, true} {
		address := harness.StartRemote(t, fmt.Sprintf(", page: %t", on)).Address
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		for path, served := range map[string]bool{"/": on, "/app.js": on, "/v1/sandboxes": false, "/absent": false, "/../app.js": false} {
			res, err := client.Get("https://" + address + path)
			if err != nil {
				t.Fatal(path, err)
			}
			_ = res.Body.Close()
			if want := map[bool]int{true: 200, false: 401}[served]; res.StatusCode != want {
				t.Errorf("page %t: GET %s: %s", on, path, res.Status)
			}
			if served && res.Header.Get("Content-Security-Policy") == "" {
				t.Errorf("GET %s has no content policy", path)
			}
		}
		client.CloseIdleConnections()
	}
}

// TestPageOverTLSVisits: to look at the page is no failure, which would shut out an address.
func TestPageOverTLSVisits(t *testing.T) {
	address := harness.StartRemote(t, ", page: true").Address
	for i := range 100 {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		res, err := client.Get("https://" + address)
		if err != nil {
			t.Fatalf("visit %d: %v", i, err)
		}
		_ = res.Body.Close()
	}
}
