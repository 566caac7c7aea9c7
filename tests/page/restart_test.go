package page

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// TestRestart: the page says that the daemon is away, and goes on with the next one. One
// that has another token locks the page.
func TestRestart(t *testing.T) {
	b := openBrowser(t)
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "the-token-of-two-daemons\n", 0o600)
	config := fmt.Sprintf("page: {listen: '127.0.0.1:%d', token_file: %s}\n", freePort(t), file)
	d := harness.StartWith(t, config)
	whole, _, token := pageURL(t, d)
	if token != "the-token-of-two-daemons" {
		t.Fatalf("the token is %q", token)
	}
	d.Run(t, "create", "--name", "survivor")
	b.open(t, whole)
	b.await(t, "the sandbox", section("Sandboxes")+".includes('survivor')")
	d.Kill(t)
	b.await(t, "that the daemon is away", "document.querySelector('.link').innerText === 'not connected' && document.querySelector('[role=alert]')")
	d.Launch(t)
	b.await(t, "that the daemon is back", "document.querySelector('.link').innerText === 'live' && !document.querySelector('[role=alert]')")
	d.Run(t, "create", "--name", "bygone")
	d.Try("exec", "bygone", "--", "sh", "-c", "exit 42")
	d.Run(t, "create", "--name", "newcomer")
	b.await(t, "the new sandbox", section("Sandboxes")+".includes('newcomer')")
	for soon := time.Now().Add(20 * time.Second); !strings.Contains(d.Run(t, "history", "--json", "bygone").Stdout, `"memory_bytes"`); time.Sleep(100 * time.Millisecond) { // samples are taken each second
		if time.Now().After(soon) {
			t.Fatal("there are no samples")
		}
	}
	d.Run(t, "rm", "--force", "bygone")
	d.Kill(t)
	writeToken(t, file, "another-token-of-the-page\n", 0o600)
	d.Launch(t)
	b.await(t, "the lock", "document.body.innerText.includes('no longer valid') && document.body.innerText.includes('SBX-808')")
	b.click(t, "//input[@type='password']")
	whole, _, _ = pageURL(t, d)
	b.keys(t, whole)
	b.click(t, button("Open"))
	b.await(t, "the sandboxes again", section("Sandboxes")+".includes('survivor')")
	// What was gone before this daemon, with its use and how its commands ended.
	// A page that connects again shows those that live: it may do so after a click.
	const chosen = "(() => { const b = [...document.querySelectorAll('button')].find((b) => b.innerText.startsWith('Ended 1')); " +
		"if (b.ariaPressed !== 'true') b.click(); return true })()"
	b.await(t, "the sandbox of the earlier daemon", chosen+" && "+section("Sandboxes")+".match(/bygone[^]*removed/)")
	b.click(t, "//a[text()='bygone']")
	b.await(t, "its command", section("Commands")+".match(/exit 42/)")
	b.await(t, "its use", section("Use over time")+".includes('Processes and threads')")
	d.Run(t, "rm", "--force", "survivor", "newcomer")
}

func writeToken(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedSettings: a daemon whose page could not be guarded does not start.
func TestRefusedSettings(t *testing.T) {
	dir := t.TempDir()
	open, short, words, good := filepath.Join(dir, "open"), filepath.Join(dir, "short"), filepath.Join(dir, "words"), filepath.Join(dir, "good")
	writeToken(t, open, "a-token-that-all-can-read", 0o644)
	writeToken(t, short, "short", 0o600)
	writeToken(t, words, "two words in one token file", 0o600)
	writeToken(t, good, "a-token-of-enough-length", 0o600)
	foreign := filepath.Join(dir, "foreign")
	writeToken(t, foreign, "a-token-of-enough-length", 0o600)
	if err := os.Chown(foreign, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	_, taken, _ := pageURL(t, daemon)
	taken = strings.TrimPrefix(taken, "http://")
	for settings, want := range map[string]string{
		"{listen: '127.0.0.1:0', token_file: " + open + "}":       "has the mode 0644",
		"{listen: '127.0.0.1:0', token_file: " + foreign + "}":    "belongs to somebody else",
		"{listen: '127.0.0.1:0', token_file: " + short + "}":      "16 or more",
		"{listen: '127.0.0.1:0', token_file: " + words + "}":      "one word",
		"{listen: '127.0.0.1:0', token_file: " + dir + "/absent}": "no such file",
		"{listen: '127.0.0.1:0', token_file: " + dir + "}":        "page.token_file",
		"{listen: '" + taken + "', token_file: " + good + "}":     "address already in use",
		"{listen: '0.0.0.0:0', token_file: " + good + "}":         "not on the loopback interface",
	} {
		d := harness.New(t)
		file := filepath.Join(d.Root, "config.yaml")
		writeToken(t, file, "ids: {blocks: 64}\npage: "+settings+"\n", 0o600)
		out, err := exec.Command(harness.Bin(t, "caissond"), "--config", file, "--root", d.Root, "--state", d.State).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "SBX-105") || !strings.Contains(string(out), want) {
			t.Errorf("page: %s: %v, want %q:\n%s", settings, err, want, out)
		}
		d.CheckNothingLeft(t)
	}
	without := harness.New(t)
	r := without.Try("page", "--state", without.State, "--json")
	if f := r.Refused(t, "SBX-802"); !strings.Contains(f.Error.Remedy, "page.listen") {
		t.Errorf("without a page: %+v", f)
	}
}
