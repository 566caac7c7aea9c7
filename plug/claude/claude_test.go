package claude

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const begin = `source /h/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && `
	for _, tt := range []struct{ text, cwd string }{
		{begin + `eval 'echo hi' < /dev/null && pwd -P >| /tmp/claude-8138-cwd`, "/tmp/claude-8138-cwd"},
		{begin + "eval 'cat <<'\"'\"'E'\"'\"'\nx\nE\nexit 3' && pwd -P >| /tmp/claude-5806-cwd", "/tmp/claude-5806-cwd"},
		{begin + `eval false < /dev/null && pwd -P >| /tmp/claude-1-cwd`, "/tmp/claude-1-cwd"},
		{begin + `eval 'true' && pwd -P >| '/a b/claude-1-cwd'`, "/a b/claude-1-cwd"},
		// The command of a model that looks like the end of a script.
		{begin + `eval 'true && pwd -P >| /etc/x' < /dev/null && pwd -P >| /tmp/claude-1-cwd`, "/tmp/claude-1-cwd"},
		{`node /x/mcp.mjs`, ""},
		{`echo && pwd -P >| /etc/x`, ""},
		{`x' && pwd -P >| /etc/x`, ""},
	} {
		if s := Parse(tt.text); s.CwdFile != tt.cwd || s.Text != strings.TrimPrefix(tt.text, begin) && tt.cwd != "" || tt.cwd == "" && s.Text != tt.text {
			t.Errorf("%q: got %+v", tt.text, s)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{"ANTHROPIC_API_KEY=k", "CLAUDE_CODE_MESSAGING_TOKEN=t", "AWS_SECRET=s", "PATH=/x", "TERM=dumb", "LC_ALL=C", "CLAUDECODE=1"})
	if want := map[string]string{"TERM": "dumb", "LC_ALL": "C", "CLAUDECODE": "1"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestKeepCwd(t *testing.T) {
	dir := t.TempDir()
	s := Script{CwdFile: filepath.Join(dir, "cwd")}
	if err := s.KeepCwd([]byte("/srv/a b\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(s.CwdFile); err != nil || string(b) != "/srv/a b\n" {
		t.Errorf("the file has %q, %v", b, err)
	}
	for _, bad := range []string{"", "relative\n", "/a\n/b\n", "/a/../b\n", "/a\x00\n"} {
		if err := s.KeepCwd([]byte(bad)); err == nil {
			t.Errorf("%q was kept", bad)
		}
	}
	target := filepath.Join(dir, "target")
	link := Script{CwdFile: filepath.Join(dir, "link")}
	if err := os.Symlink(target, link.CwdFile); err != nil {
		t.Fatal(err)
	}
	if err := link.KeepCwd([]byte("/a\n")); err == nil {
		t.Error("a link was followed")
	}
}
