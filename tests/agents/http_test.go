package agents

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/need"
)

// npmTimeout bounds a program from npm.
const npmTimeout = 3 * time.Minute

// serveHTTP starts a server for one sandbox, and returns its address and its token.
func serveHTTP(t *testing.T, name string) (url, token string) {
	t.Helper()
	token = "a-token-of-a-test"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Try("rm", "--force", name) })
	server := daemon.Command(context.WithoutCancel(t.Context()), "mcp", "--sandbox", name, "--ensure", "--listen", "127.0.0.1:0", "--token-file", file)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), token
}

// install installs the programs of a folder of testdata, with what the tests add to them.
func install(t *testing.T, folder string) (dir string) {
	t.Helper()
	need.Tools(t, "node", "npm")
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", folder))); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	return dir
}

func runIn(t *testing.T, dir, name string, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), npmTimeout)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "MCP_CATALOG_PATH="+filepath.Join(dir, "catalog.json"))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out.Bytes(), errs.Bytes())
	}
	return out.String(), errs.String()
}

// TestMCPClients has the clients of the protocol's authors use the server, unmodified.
func TestMCPClients(t *testing.T) {
	dir := install(t, "mcp")
	t.Run("schemas", func(t *testing.T) {
		// The inspector passes no environment, and without a socket the server starts a daemon of the host.
		server := append([]string{"env", "CAISSON_SOCKET=" + daemon.Socket}, daemon.Command(t.Context(), "mcp").Args...)
		_, said := runIn(t, dir, "node_modules/.bin/mcp-inspector", append([]string{"--cli", "--strict", "--method", "tools/list", "--transport", "stdio", "--"}, server...)...)
		if strings.Contains(said, "Warning") {
			t.Error(said)
		}
	})
	url, token := serveHTTP(t, "http")
	for era, version := range map[string]string{"legacy": `2025-\d\d-\d\d`, "auto": "2026-07-28"} {
		t.Run(era, func(t *testing.T) {
			out, _ := runIn(t, dir, "node", "client.mjs", recordedHTTP(t, "mcp-http-"+era, url), token, era)
			want := regexp.MustCompile("^version " + version + "\n\\[\"out\\\\n\",\"err\\\\n\",3,false\\]\nprogress true\ncancelled\nnothing left\n$")
			if !want.MatchString(out) {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// TestHTTPIsGuarded: without the token, from another site or by another host name nobody
// gets in. The same request with what is missing does.
func TestHTTPIsGuarded(t *testing.T) {
	url, token := serveHTTP(t, "guarded")
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, tt := range []struct {
		name, token, host, origin string
		status                    int
	}{
		{"all that is needed", token, "", "", 200},
		{"no token", "", "", "", 401},
		{"another token", token + "x", "", "", 401},
		{"another host name", token, "attacker.example", "", 403},
		{"a page of another site", token, "", "https://attacker.example", 403},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+tt.token)
		}
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		r.Host = tt.host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body) // only to be shown
		_ = answer.Body.Close()            // it was read
		if answer.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.name, answer.StatusCode, tt.status, body)
		}
	}
}
