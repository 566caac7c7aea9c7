package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClaudeCodeByMCP has the real program use the server, as it is configured for it.
func TestClaudeCodeByMCP(t *testing.T) {
	program := filepath.Join(install(t, "claude"), claudePath)
	t.Cleanup(func() { daemon.Try("rm", "--force", "by-mcp") })
	s := newClaudeSession(t, newClaudeModel(t,
		toolCall{"mcp__caisson__bash", arguments{"command": inside + "pwd"}},
		toolCall{"mcp__caisson__write_file", arguments{"path": "/tmp/x.txt", "content": "one\ntwo\n"}},
		toolCall{"mcp__caisson__edit_file", arguments{"path": "/tmp/x.txt", "old": "two", "new": "2"}},
		toolCall{"mcp__caisson__read_file", arguments{"path": "/tmp/x.txt"}},
		toolCall{"mcp__caisson__search_files", arguments{"path": "/tmp", "pattern": `^\d$`}},
		toolCall{"mcp__caisson__bash", arguments{"command": "echo out; echo err >&2; exit 3"}},
		toolCall{"mcp__caisson__read_file", arguments{"path": "/tmp/none"}},
	))
	s.plug = false
	config := daemon.Run(t, "mcp", "--sandbox", "by-mcp", "--ensure", "--workspace", s.project+":"+s.project, "--print-config", "claude").Stdout
	s.run(t, program, "--disallowedTools", "Bash", "--allowedTools", "mcp__caisson", "--mcp-config", recorded(t, "claude", config))
	if got := s.model.result(0); !strings.Contains(got, "caisson-init") || !strings.Contains(got, s.project) {
		t.Errorf("the tool returned %q", got)
	}
	for i, want := range []string{`"size_bytes":8`, `"replacements":1`, "one", "x.txt:2:2", "err", "SBX-212"} {
		if got := s.model.result(i + 1); !strings.Contains(got, want) {
			t.Errorf("call %d returned %q, want %q", i+1, got, want)
		}
	}
}

// TestGeminiByMCP: Gemini CLI starts the server that its configuration names.
func TestGeminiByMCP(t *testing.T) {
	dir, home := install(t, "gemini"), t.TempDir()
	config := daemon.Run(t, "mcp", "--print-config", "gemini").Stdout
	if err := os.Mkdir(filepath.Join(home, ".gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".gemini/settings.json"), []byte(recorded(t, "gemini", config)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GEMINI_CLI_TRUST_WORKSPACE", "true")
	t.Setenv("CAISSON_SOCKET", daemon.Socket)
	out, errs := runIn(t, dir, "node_modules/.bin/gemini", "mcp", "list")
	if list := out + errs; !strings.Contains(list, "caisson: ") || !strings.Contains(list, "Connected") {
		t.Errorf("the servers: %q", list)
	}
}
