package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// TestBundle: images and files get to another daemon whole, once, and only signed.
func TestBundle(t *testing.T) {
	need.Tools(t, "openssl")
	from, to := harness.StartWith(t, ""), harness.StartWith(t, "")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	from.Run(t, "image", "import", "--name", "one", writeTar(t, ociLayout(t, "first")))
	from.TryWith("FROM one\nLABEL a=b\nCMD [\"cat\", \"/mark\"]\n", "image", "build", "two", "-f", "-")
	if err := os.WriteFile(at("profiles.yaml"), []byte("profiles: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	from.Run(t, "bundle", "keygen", at("key"))
	for _, args := range [][]string{{"genpkey", "-algorithm", "ed25519", "-out", at("ssl")}, {"pkey", "-in", at("ssl"), "-pubout", "-out", at("ssl.pub")}} {
		if out, err := exec.Command("openssl", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	from.Run(t, "bundle", "create", "-f", at("b"), "--key", at("ssl"), "--image", "one", "--image", "two", "--profiles", at("profiles.yaml"))
	load := []string{"bundle", "load", at("b"), "--key", at("ssl.pub"), "--profiles", at("in")}
	if r := to.Try("bundle", "load", at("b"), "--key", at("key.pub")); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-230") {
		t.Errorf("with another key: %+v", r)
	}
	if r := to.Try("bundle", "load", at("b")); r.Code == 0 || !strings.Contains(r.Stderr, "--unsigned") {
		t.Errorf("without a key: %+v", r)
	}
	damage(t, at("b"), func() {
		if r := to.Try(load...); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-230") {
			t.Errorf("damaged: %+v", r)
		}
	})
	if all := names(t, to); all != "base" {
		t.Errorf("refused bundles left %s", all)
	}
	if err := os.Mkdir(at("in"), 0o755); err != nil {
		t.Fatal(err)
	}
	to.Run(t, load...)
	if out := to.Run(t, "run", "--image", "two").Stdout; out != "first" {
		t.Errorf("the image prints %q", out)
	}
	if got, err := os.ReadFile(at("in/profiles.yaml")); err != nil || string(got) != "profiles: {}\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if again := to.Run(t, load...).Stderr; !strings.Contains(again, "one is there") || !strings.Contains(again, "two is there") {
		t.Errorf("again: %s", again)
	}
	to.Run(t, "image", "rm", "one") // as if the load had been interrupted
	if rest := to.Run(t, load...); strings.Contains(rest.Stderr, "one is there") || !strings.Contains(rest.Stderr, "two is there") {
		t.Errorf("the rest: %+v", rest)
	}
	if left, err := filepath.Glob(at(".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if shown := to.Run(t, "bundle", "inspect", at("b"), "--key", at("ssl.pub")).Stdout; !strings.Contains(shown, `"signed": true`) || !strings.Contains(shown, "profiles.yaml") {
		t.Errorf("inspect shows %s", shown)
	}
	if r := from.Try("bundle", "create", "-f", at("b"), "--unsigned", "--image", "absent"); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-201") {
		t.Errorf("an absent image: %+v", r)
	}
	to.Run(t, load...) // the bundle is as it was
}

// damage calls test with one bit of a file changed, and with the file cut.
func damage(t *testing.T, path string, test func()) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{len(whole) / 2, len(whole) - 1} {
		broken := append([]byte{}, whole...)
		broken[at] ^= 4
		for _, content := range [][]byte{broken, whole[:at]} {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			test()
		}
	}
	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
}
