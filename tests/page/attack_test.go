package page

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// get makes a call of the page as a program does, with headers KEY: VALUE.
func get(t *testing.T, method, url string, headers ...string) (status int, code string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &e) // an answer that is no refusal has no code
	return res.StatusCode, e.Error.Code
}

// TestUsersOfTheHost: whoever reaches the port does nothing without the token, and root
// hears of the attempts. Only root reads the URL.
func TestUsersOfTheHost(t *testing.T) {
	_, origin, token := pageURL(t, daemon)
	id := create(t, daemon, "--name", "guarded")
	auth := "Authorization: Bearer " + token
	if status, _ := get(t, "GET", origin+"/v1/sandboxes", auth); status != http.StatusOK {
		t.Fatalf("with the token: status %d", status)
	}
	for _, c := range []struct {
		method, path string
		headers      []string
		status       int
		code         string
	}{
		{"GET", "/v1/sandboxes", nil, 401, "SBX-808"},
		{"DELETE", "/v1/sandboxes/" + id + "?force=true", []string{"Authorization: Bearer wrong"}, 401, "SBX-808"},
		{"GET", "/v1/sandboxes", []string{auth, "Host: attacker.example"}, 421, "SBX-809"},
		{"GET", "/", []string{"Host: attacker.example"}, 421, "SBX-809"},
		{"GET", "/v1/sandboxes", []string{auth, "Origin: http://attacker.example"}, 403, "SBX-809"},
		{"POST", "/v1/sandboxes/" + id + "/stop", []string{auth, "Sec-Fetch-Site: cross-site"}, 403, "SBX-809"},
		{"POST", "/v1/run", []string{auth}, 403, "SBX-809"},
		{"POST", "/v1/sandboxes/" + id + "/execs", []string{auth}, 403, "SBX-809"},
		{"POST", "/caisson.v1.SandboxService/List", []string{auth}, 404, "SBX-809"},
		{"GET", "/metrics", []string{auth}, 404, "SBX-809"},
	} {
		if status, code := get(t, c.method, origin+c.path, c.headers...); status != c.status || code != c.code {
			t.Errorf("%s %s with %q: %d %s, want %d %s", c.method, c.path, c.headers, status, code, c.status, c.code)
		}
	}
	if s := stateOf(t, daemon, id); s != "running" {
		t.Errorf("the sandbox is %q", s)
	}
	told := ""
	for end := time.Now().Add(patience); !strings.Contains(told, "SBX-808") && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		told = daemon.Run(t, "events", "--json", "--since", "1m", "--filter", "type=call.refused").Stdout
	}
	if !strings.Contains(told, `"call":"page"`) || !strings.Contains(told, "SBX-808") {
		t.Errorf("root hears of the attempts: %s", told)
	}
	if st, err := os.Stat(filepath.Join(daemon.State, "page.url")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file with the URL: %v, %v", st.Mode(), err)
	}
	if log := daemon.Log(); strings.Contains(log, token) {
		t.Error("the daemon's log holds the token")
	}
}

// attack is a page of another site. It tries what a page can, and writes down how it went.
const attack = `<!doctype html><title>attack</title><body><iframe id="frame" src="%[1]s/"></iframe>
<form id="form" method="post" action="%[1]s/v1/sandboxes/%[2]s/stop" target="sink"></form><iframe name="sink"></iframe>
<script>
window.told = {};
const note = (name, f) => f().then((r) => { told[name] = 'worked: ' + r; }, (e) => { told[name] = 'failed: ' + e; });
note('read', async () => (await fetch('%[1]s/v1/sandboxes')).text());
note('readFile', async () => (await fetch('%[1]s/app.js')).text());
note('withToken', async () => (await fetch('%[1]s/v1/sandboxes', {headers: {Authorization: 'Bearer %[3]s'}})).text());
note('stop', async () => (await fetch('%[1]s/v1/sandboxes/%[2]s/stop', {method: 'POST', mode: 'no-cors'})).type);
note('module', async () => import('%[1]s/api.js'));
document.getElementById('form').submit();
</script>`

// TestForeignSite lets a page of another site, in the operator's browser, attack the page.
func TestForeignSite(t *testing.T) {
	b := openBrowser(t)
	whole, origin, token := pageURL(t, daemon)
	id := create(t, daemon, "--name", "attacked")
	b.open(t, whole) // the operator is at work
	b.await(t, "the sandbox", "document.body.innerText.includes('attacked')")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, attack, origin, id, token)
	}))
	defer site.Close()
	b.open(t, site.URL)
	b.await(t, "the end of the attack", "Object.keys(window.told ?? {}).length === 5")
	told := eval[map[string]string](t, b, "window.told")
	for name, how := range told {
		if name != "stop" && !strings.HasPrefix(how, "failed: ") || strings.Contains(how, "attacked") {
			t.Errorf("%s %s", name, how)
		}
	}
	if how := told["stop"]; how != "worked: opaque" && !strings.HasPrefix(how, "failed: ") { // sent, and refused
		t.Errorf("stop %s", how)
	}
	if framed := eval[bool](t, b, "(() => { try { return document.getElementById('frame').contentDocument !== null } catch { return false } })()"); framed {
		t.Error("the page can be read in a frame")
	}
	blocked := strings.Join(b.do(t, order{Do: "seen"}).Errors, "\n")
	if !strings.Contains(blocked, "frame-ancestors") {
		t.Errorf("no frame was refused: %s", blocked)
	}
	if s := stateOf(t, daemon, id); s != "running" {
		t.Errorf("the sandbox is %q", s)
	}
}

// TestHostileNames: what a sandbox chooses is text on the page.
func TestHostileNames(t *testing.T) {
	b := openBrowser(t)
	whole, origin, token := pageURL(t, daemon)
	id := create(t, daemon, "--name", "hostile", "--label", "note=<img src=x onerror=window.owned=1>")
	daemon.Run(t, "exec", id, "--", "sh", "-c", "echo '<img src=x onerror=window.owned=1>' '<script>window.owned=1</script>'", "<svg onload=window.owned=1>", "a\u202eb")
	b.open(t, whole)
	b.click(t, row("hostile"))
	b.await(t, "the output", section("Output")+".includes('<script>')")
	b.await(t, "the label", "document.querySelector('.facts').innerText.includes('<img')")
	if eval[bool](t, b, "document.body.innerText.includes('\\u202e')") {
		t.Error("text of the sandbox turns what follows around")
	}
	if owned := eval[bool](t, b, "'owned' in window || document.querySelector('main img, main script') !== null"); owned {
		t.Error("text of the sandbox became markup")
	}
	b.checkQuiet(t, origin, token)
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing was accepted
	return l.Addr().(*net.TCPAddr).Port
}
