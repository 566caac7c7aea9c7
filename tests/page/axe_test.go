package page

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// axe is the source of axe-core, which judges whether everybody can use a page.
func axe(t *testing.T) string {
	t.Helper()
	need.Tools(t, "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/axe")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// violations are what axe-core finds on the page that is open, by all of its rules.
func violations(t *testing.T, b *browser, source string) []string {
	t.Helper()
	eval[bool](t, b, source+"; true")
	return eval[[]string](t, b, `axe.run(document).then((r) => r.violations.map((v) =>
		v.id + ': ' + v.help + '\n' + v.nodes.map((n) => n.target.join(' ') + '\n' + n.failureSummary).join('\n')))`)
}

// TestEverybody has axe-core judge each view of the page, in both colour schemes and on a desk and a phone.
func TestEverybody(t *testing.T) {
	source := axe(t)
	b := openBrowser(t)
	whole, origin, _ := pageURL(t, daemon)
	const name = "agent-frontend-build-nightly-7"
	id := create(t, daemon, "--name", name, "--session", "nightly", "--profile", "watched", "--allow", "allowed.example")
	daemon.Run(t, "exec", "-d", id, "--", "sh", "-c", "echo out; echo err >&2; wget -q -T 2 http://refused.example; exit 3")
	daemon.Run(t, "exec", "-d", id, "--", "sleep", "600")

	daemon.Run(t, "volume", "create", "--size", "64M", "judged")
	t.Cleanup(func() { daemon.Run(t, "volume", "rm", "judged") })

	judge := func(view string) {
		t.Helper()
		for _, v := range violations(t, b, source) {
			t.Errorf("%s: %s", view, v)
		}
	}
	b.open(t, origin+"/#token=wrong")
	b.await(t, "that the token is wrong", "document.body.innerText.includes('not the token of this daemon') && document.body.innerText.includes('SBX-808')")
	judge("a wrong token")
	for _, look := range []struct {
		width, height int
		scheme        string
	}{{1280, 900, "light"}, {1280, 900, "dark"}, {400, 800, "light"}} {
		b.look(t, look.width, look.height, look.scheme)
		b.open(t, "about:blank")
		b.open(t, whole)
		b.await(t, "the refusal", section("Refused")+".includes('refused.example')")
		b.await(t, "what it uses", section("Sandboxes")+".includes('MiB')")
		b.await(t, "the volumes", section("Volumes")+".includes('judged')")
		judge("the list, " + look.scheme)
		if cut := eval[bool](t, b, "(() => { const a = document.querySelector('td.name a'); return a.getBoundingClientRect().right > a.parentElement.getBoundingClientRect().right })()"); cut {
			t.Errorf("the name %s is cut at %d pixels", name, look.width)
		}
		b.click(t, row(name))
		b.await(t, "the output", "document.querySelector('.screen')?.innerText.length >= 0 && "+section("Commands")+".includes('exit 3')")
		judge("a sandbox, " + look.scheme)
		if look.width > 1000 {
			b.click(t, button("Remove"))
			judge("a question, " + look.scheme)
		}
	}
	eval[bool](t, b, `(() => {
		const [text, picture] = ['p', 'img'].map((kind) => document.createElement(kind));
		Object.assign(text.style, { color: '#ccc', background: '#fff' });
		text.textContent = 'pale';
		picture.src = 'icon.svg';
		document.querySelector('main').append(text, picture);
		return true;
	})()`)
	if found := strings.Join(violations(t, b, source), "\n"); !strings.Contains(found, "color-contrast") || !strings.Contains(found, "image-alt") {
		t.Errorf("pale text and a picture without a text pass: %s", found)
	}
}
