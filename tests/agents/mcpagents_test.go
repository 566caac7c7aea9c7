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
	s := newClaudeSession(t, newClaudeModel(t, toolCall{"mcp__caisson__bash", arguments{"command": inside + "pwd"}}))
	s.plug = false
	config := daemon.Run(t, "mcp", "--sandbox", "by-mcp", "--ensure", "--workspace", s.project+":"+s.project, "--print-config", "claude").Stdout
	s.run(t, program, "--disallowedTools", "Bash", "--allowedTools", "mcp__caisson__bash", "--mcp-config", config)
	if got := s.model.result(0); !strings.Contains(got, "caisson-init") || !strings.Contains(got, s.project) {
		t.Errorf("the tool returned %q", got)
	}
}

// TestGeminiByMCP: Gemini CLI starts the server that its configuration names.
func TestGeminiByMCP(t *testing.T) {
	dir, home := install(t, "gemini"), t.TempDir()
	config := daemon.Run(t, "mcp", "--print-config", "gemini").Stdout
	if err := os.Mkdir(filepath.Join(home, ".gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".gemini/settings.json"), []byte(config), 0o600); err != nil {
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
