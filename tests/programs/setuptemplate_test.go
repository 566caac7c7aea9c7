package programs

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// install makes an environment of Python with a program of the index.
const install = "python3 -m venv /opt/env && PIP_INDEX_URL=http://" + index + "/installed PIP_TRUSTED_HOST=" + index + " PIP_DISABLE_PIP_VERSION_CHECK=1 /opt/env/bin/pip -q install greeter"

// greeting is a profile whose template has that.
const greeting = `, greeting: {image: tools, setup: {run: ["` + install + `", "echo dev:x:1500:1500::/home/dev:/bin/sh >>/etc/passwd"], network: {allow: [` + index + `]}}}`

// beginsInstalled: what pip installed once is in each sandbox of a profile, which reaches no host
// and whose root cannot be written.
func (s *setup) beginsInstalled(t *testing.T) {
	dir := t.TempDir()
	wheel(t, dir, "greeter", "greeter/__init__.py", "from words import word\ndef main(): print('hello', word)\n", "Requires-Dist: words\n", "[console_scripts]\ngreet = greeter:main\n")
	wheel(t, dir, "words", "words.py", "word = 'world'\n", "", "")
	s.serve("/installed/", dir)
	if r := s.Try("run", "--image", "tools", "--profile", "greeting", "--", "/opt/env/bin/greet"); r.Code != 127 {
		t.Fatalf("without the template: %d, %s", r.Code, r.Stderr)
	}
	greet := func() (time.Duration, harness.Result) {
		began := time.Now()
		r := s.Try("run", "--profile", "greeting", "--user", "dev", "--", "/opt/env/bin/greet")
		return time.Since(began), r
	}
	first, r := greet()
	if r.Code != 0 || r.Stdout != "hello world\n" {
		t.Fatalf("%d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	again, r := greet()
	if r.Code != 0 || r.Stdout != "hello world\n" {
		t.Fatalf("again: %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	t.Logf("with the set-up %s, with its template %s", first, again)
	if again > first/2 {
		t.Errorf("the second took %s, the first %s", again, first)
	}
	if out := s.Run(t, "template", "inspect", "greeting").Stdout; !strings.Contains(out, "ready") {
		t.Errorf("inspected:\n%s", out)
	}
	if r := s.Try("run", "--profile", "greeting", "--", "touch", "/opt/env/x"); r.Code == 0 {
		t.Error("the template can be written")
	}
	if r := s.Try("run", "--profile", "greeting", "--", "/opt/env/bin/python", "-c", "import urllib.request as u; u.urlopen('http://"+index+"/installed/', timeout=5)"); r.Code == 0 {
		t.Error("a sandbox has the network of the set-up")
	}
	s.Run(t, "template", "rm", "greeting")
}
