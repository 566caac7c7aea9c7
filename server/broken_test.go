package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/server/servertest"
)

// Whatever is wrong with a body, the caller hears of it in the form of all errors, and as
// something of its own.
func TestBrokenBodies(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{})
	for name, tc := range map[string]struct {
		call, kind, headers, body string
		length                    int // 0: that of the body
	}{
		"no JSON":             {"SandboxService/List", "application/json", "", `{"labels":`, 0},
		"another type":        {"SandboxService/List", "application/json", "", `[]`, 0},
		"two values":          {"SandboxService/List", "application/json", "", `{}{}`, 0},
		"no UTF-8":            {"SandboxService/Inspect", "application/json", "", "{\"ref\":\"\xff\"}", 0},
		"no protobuf":         {"SandboxService/List", "application/proto", "", "\xff\xff\xff", 0},
		"cut protobuf":        {"SandboxService/Inspect", "application/proto", "", "\x0a\x20ab", 0},
		"truncated":           {"SandboxService/List", "application/json", "", `{}`, 100},
		"truncated protobuf":  {"SandboxService/List", "application/proto", "", "\x0a", 100},
		"no gzip":             {"SandboxService/List", "application/json", "Content-Encoding: gzip\r\n", `{}`, 0},
		"cut gzip":            {"SandboxService/List", "application/json", "Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00\x00", 0},
		"another encoding":    {"SandboxService/List", "application/json", "Content-Encoding: br\r\n", `{}`, 0},
		"odd timeout":         {"SandboxService/List", "application/json", "Connect-Timeout-Ms: x\r\n", `{}`, 0},
		"odd version":         {"SandboxService/List", "application/json", "Connect-Protocol-Version: 9\r\n", `{}`, 0},
		"cut envelope":        {"SandboxService/Logs", "application/connect+json", "", "\x00\x00", 0},
		"envelope cut short":  {"SandboxService/Logs", "application/connect+json", "", "\x00\x00\x00\x00\x10{}", 0},
		"long envelope":       {"SandboxService/Logs", "application/connect+json", "", "\x00\xff\xff\xff\xff{}", 0},
		"envelope of no JSON": {"SandboxService/Logs", "application/connect+json", "", "\x00\x00\x00\x00\x01{", 0},
		"compressed envelope": {"SandboxService/Logs", "application/connect+json", "", "\x01\x00\x00\x00\x02{}", 0},
		"unknown flags":       {"SandboxService/Logs", "application/connect+json", "", "\x40\x00\x00\x00\x02{}", 0},
		"no envelope":         {"SandboxService/Logs", "application/connect+json", "", "", 0},
		"chunks cut short":    {"SandboxService/List", "application/json", "Transfer-Encoding: chunked\r\n", "5\r\n{}", -1},
		"no chunks":           {"SandboxService/List", "application/json", "Transfer-Encoding: chunked\r\n", "xyz\r\n", -1},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			length := ""
			if tc.length >= 0 {
				length = fmt.Sprintf("Content-Length: %d\r\n", max(tc.length, len(tc.body)))
			}
			fmt.Fprintf(c, "POST /caisson.v1.%s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n%s%s\r\n%s", tc.call, tc.kind, tc.headers, length, tc.body)
			// Only where the body is what breaks off: to the server, who ends his side has left.
			if tc.length != 0 {
				if err := c.(*net.UnixConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			text := string(body)
			if tc.kind == "application/connect+json" { // whose errors come in the stream
				if res.StatusCode != http.StatusOK || len(body) < 5 || body[0] != 2 {
					t.Fatalf("%s %q, %v", res.Status, body, err)
				}
				text = text[5:]
			} else if res.StatusCode < 400 || res.StatusCode > 499 || res.StatusCode == 499 {
				t.Errorf("the status is %s", res.Status)
			}
			if err != nil || !strings.Contains(text, `"SBX-801"`) || !strings.Contains(text, `"invalid_argument"`) && !strings.Contains(text, `"resource_exhausted"`) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
