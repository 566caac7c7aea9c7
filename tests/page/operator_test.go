package page

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// row is the link of a sandbox in the list.
func row(name string) string { return "//a[text()='" + name + "']" }

func button(text string) string { return "//button[text()='" + text + "']" }

// confirm is the button of the question that is asked.
func confirm(text string) string { return "//dialog//button[text()='" + text + "']" }

// stateOf is the state of a sandbox as the command line tells it; empty: there is none.
func stateOf(t *testing.T, d *harness.Daemon, id string) string {
	t.Helper()
	var list []struct{ ID, State string }
	d.Run(t, "ls", "-o", "json").JSON(t, &list)
	for _, s := range list {
		if s.ID == id {
			return s.State
		}
	}
	return ""
}

// create makes a sandbox that the end of the test removes, and returns its ID.
func create(t *testing.T, d *harness.Daemon, args ...string) string {
	t.Helper()
	id := strings.TrimSpace(d.Run(t, append([]string{"create"}, args...)...).Stdout)
	t.Cleanup(func() {
		if stateOf(t, d, id) != "" {
			d.Run(t, "rm", "--force", id)
		}
	})
	return id
}

// TestOperator does what an operator does: finds a sandbox, watches its output come, sees
// what was refused and what would allow it, and pauses, resumes, stops and removes it.
//
//caisson:smoke
func TestOperator(t *testing.T) {
	b := openBrowser(t)
	whole, origin, token := pageURL(t, daemon)
	id := create(t, daemon, "--name", "watched-agent", "--session", "nightly", "--profile", "watched", "--allow", "allowed.example")
	daemon.Run(t, "volume", "create", "--size", "64M", "shared-deps")
	t.Cleanup(func() { daemon.Run(t, "volume", "rm", "shared-deps") })
	daemon.Run(t, "exec", "-d", id, "--", "sh", "-c", `echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; printf '\033[31mcolour\033[0m <b>bold</b>\n'; echo trouble >&2; sleep 600`)
	b.open(t, whole)
	b.await(t, "the sandbox", "document.body.innerText.includes('watched-agent')")
	if address := eval[string](t, b, "location.href"); strings.Contains(address, token) {
		t.Errorf("the token stays in the address bar: %s", address)
	}
	b.await(t, "what it uses", section("Sandboxes")+".includes('MiB')")
	b.await(t, "the volume with its use", section("Volumes")+".match(/shared-deps[^]*of 64.0 MiB[^]*no sandbox uses it/)")
	b.click(t, row("watched-agent"))
	b.await(t, "the output so far", section("Output")+".includes('begun')")
	daemon.Run(t, "exec", id, "--", "touch", "/tmp/go")
	b.await(t, "the new output", section("Output")+".includes('colour <b>bold</b>')")
	b.await(t, "standard error", "document.querySelector('.screen .stderr')?.innerText.includes('trouble')")
	if n := eval[int](t, b, "document.querySelectorAll('.screen b').length"); n != 0 {
		t.Error("output became markup")
	}
	b.await(t, "the graphs", "document.querySelectorAll('.chart canvas').length === 4")

	daemon.Try("exec", id, "--", "sh", "-c", "wget -T2 -qO- http://refused.example/; wget -T2 -qO- http://10.9.8.7:8080/")
	b.await(t, "the refused name with its rule", section("Refused")+".match(/refused.example[^]*would be allowed by refused.example/)")
	b.await(t, "the refused address with its rule", section("Refused")+".includes('10.9.8.7:8080,private')")
	b.await(t, "the alert", section("Alerts")+".includes('refusals')")

	b.click(t, button("Pause"))
	b.await(t, "paused", state+" === 'paused'")
	if s := stateOf(t, daemon, id); s != "paused" {
		t.Errorf("the sandbox is %q", s)
	}
	b.click(t, button("Resume"))
	b.await(t, "running", state+" === 'running'")
	b.click(t, button("Stop"))
	b.click(t, confirm("Cancel"))
	if s := stateOf(t, daemon, id); s != "running" {
		t.Errorf("after Cancel the sandbox is %q", s)
	}
	b.click(t, button("Stop"))
	b.click(t, confirm("Stop"))
	b.await(t, "exited", state+" === 'exited'")
	b.await(t, "the output of an ended sandbox", section("Output")+".includes('begun')")
	b.click(t, button("Remove"))
	b.click(t, confirm("Remove"))
	b.await(t, "the list", "location.hash === '#/'")
	if s := stateOf(t, daemon, id); s != "" {
		t.Errorf("the removed sandbox is %q", s)
	}
	b.click(t, "//button[starts-with(text(), 'Ended')]")
	b.await(t, "the removed sandbox", section("Sandboxes")+".match(/watched-agent[^]*removed/)")
	b.checkQuiet(t, origin, token)
}

// TestAudited: the audit log tells what was done by the page.
func TestAudited(t *testing.T) {
	b := openBrowser(t)
	whole, _, _ := pageURL(t, daemon)
	id := create(t, daemon, "--name", "audited")
	b.open(t, whole)
	b.click(t, row("audited"))
	b.click(t, button("Pause"))
	b.await(t, "paused", state+" === 'paused'")
	found := daemon.Run(t, "events", "--json", "--since", "1m", "--filter", "type=sandbox.paused", "--filter", "sandbox="+id).Stdout
	if !strings.Contains(found, `"caller":"uid 0"`) || !strings.Contains(found, `"request_id":"page-`) {
		t.Errorf("the event is %s", found)
	}
}

// TestIdleMark: the page says why a sandbox is paused that somebody's use wakes, and does not
// wake it.
func TestIdleMark(t *testing.T) {
	b := openBrowser(t)
	whole, _, _ := pageURL(t, daemon)
	id := create(t, daemon, "--name", "dozing", "--idle-timeout", "1s", "--on-idle", "pause")
	b.open(t, whole)
	b.await(t, "the mark in the list", section("Sandboxes")+".match(/dozing[^]*paused[^]*idle/)")
	b.click(t, row("dozing"))
	b.await(t, "the mark of the sandbox", state+" === 'paused' && document.querySelector('.title .mark')?.innerText === 'idle'")
	if s := stateOf(t, daemon, id); s != "paused" {
		t.Errorf("the sandbox is %q", s)
	}
	daemon.Run(t, "exec", id, "--", "true")
	b.await(t, "no mark", state+" === 'running' && !document.querySelector('.title .mark')")
}

// TestKeyboard works without a mouse.
func TestKeyboard(t *testing.T) {
	b := openBrowser(t)
	whole, _, _ := pageURL(t, daemon)
	create(t, daemon, "--name", "other")
	id := create(t, daemon, "--name", "by-keyboard")
	b.open(t, whole)
	b.await(t, "the sandboxes", section("Sandboxes")+".includes('by-keyboard')")
	b.keys(t, "/")
	b.keys(t, "keyb")
	b.await(t, "one row", "document.querySelectorAll('a.row').length === 1")
	b.keys(t, "\x1b") // Escape leaves the filter
	b.keys(t, "j")
	b.await(t, "the row with the focus", "document.activeElement.innerText === 'by-keyboard'")
	b.keys(t, "\r")
	b.await(t, "the sandbox", state+" === 'running'")
	press := func(name string) {
		for range 20 {
			b.keys(t, "\t")
			if eval[string](t, b, "document.activeElement.innerText") == name {
				if width := eval[string](t, b, "getComputedStyle(document.activeElement).outlineStyle"); width == "none" {
					t.Errorf("nothing shows that %s has the focus", name)
				}
				b.keys(t, "\r")
				return
			}
		}
		t.Fatalf("the key Tab does not lead to %s", name)
	}
	press("Pause")
	b.await(t, "paused", state+" === 'paused'")
	press("Remove")
	b.await(t, "the question", "document.querySelector('dialog[open]')")
	b.keys(t, "\x1b")
	b.await(t, "no question", "!document.querySelector('dialog[open]')")
	b.keys(t, "\x1b")
	b.await(t, "the list", "location.hash === '#/'")
	if s := stateOf(t, daemon, id); s != "paused" {
		t.Errorf("the sandbox is %q", s)
	}
}

// TestPictures: the page fits a desk and a phone, in light and in dark.
func TestPictures(t *testing.T) {
	b := openBrowser(t)
	whole, origin, token := pageURL(t, daemon)
	id := create(t, daemon, "--name", "a-sandbox-with-a-rather-long-name-for-a-telephone", "--session", "nightly", "--task", "build", "--allow", "allowed.example", "--label", "team=blue")
	daemon.Run(t, "exec", "-d", id, "--", "sh", "-c", "while echo working; do sleep 0.2; done")
	daemon.Try("exec", id, "--", "wget", "-qO-", "http://refused.example/")
	b.open(t, whole)
	b.await(t, "the sandboxes", section("Sandboxes")+".includes('MiB')")
	backs := map[string]bool{}
	for _, view := range []struct{ name, hash string }{{"list", "#/"}, {"sandbox", "#/sandboxes/" + id}} {
		eval[string](t, b, "location.hash = '"+view.hash+"'")
		b.await(t, "the refusal", section("Refused")+".includes('refused.example')")
		for _, look := range []struct {
			name   string
			width  int
			scheme string
		}{{"light", 1400, "light"}, {"dark", 1400, "dark"}, {"narrow", 360, "light"}} {
			b.look(t, look.width, 900, look.scheme)
			b.await(t, "no more than the screen", "document.documentElement.scrollWidth <= innerWidth")
			backs[eval[string](t, b, "getComputedStyle(document.body).backgroundColor")] = true
			b.shoot(t, view.name+"-"+look.name)
		}
	}
	if len(backs) != 2 {
		t.Errorf("light and dark have the backgrounds %v", backs)
	}
	b.checkQuiet(t, origin, token)
}
