package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// TestKilledInBuild: a daemon that dies, or fails, in a build leaves no image of the name,
// no context and no sandbox. The repeated build goes on with the steps that were done.
func TestKilledInBuild(t *testing.T) {
	b := newBreakable(t, "")
	dir := t.TempDir()
	for name, content := range map[string]string{"Dockerfile": "FROM base\nCOPY mark /\nUSER root\nRUN echo $(cat /mark)2 > /two\n", "mark": "1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.Run(t, "image", "build", "built", dir)
	before := imageNamed(t, b.Daemon, "built").Digest
	for _, point := range need.Turn(t, []string{"build/layer", "build/step", "build/run", "create/posture", "create/rootfs", "build/name"}) {
		for _, how := range []string{"kill", "error"} {
			t.Run(point+" "+how, func(t *testing.T) {
				args := []string{"image", "build", "--no-cache", "built", dir}
				b.arm(t, point+"="+how)
				if how == "kill" {
					build := begin(t, b.Daemon, args...)
					b.died(t, point)
					if build.end(t).Code == 0 {
						t.Error("the killed build succeeded")
					}
				} else if r := b.Try(args...); r.Code == 0 || !strings.Contains(r.Stderr, "SBX-001") {
					t.Errorf("the failed build: %+v", r)
				}
				b.disarm(t)
				if now := imageNamed(t, b.Daemon, "built").Digest; now != before {
					t.Errorf("the image of the name is another one, %s", now)
				}
				if usage := b.Run(t, "image", "du").Stdout; strings.Contains(usage, "build-context") {
					t.Errorf("a context is left:\n%s", usage)
				}
				b.empty(t)
				b.Run(t, "image", "build", "built", dir)
				if out := b.Run(t, "run", "--image", "built", "--", "cat", "/two").Stdout; out != "12\n" {
					t.Errorf("the repeated build made %q", out)
				}
				before = imageNamed(t, b.Daemon, "built").Digest
			})
		}
	}
}
