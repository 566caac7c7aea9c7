package network

import (
	"strings"
	"testing"
	"time"
)

// The tools of the image base take a name that no rule allows for one that does not exist,
// and none of them waits for its time to run out.
func TestToolsOfTheImage(t *testing.T) {
	reaches(t, "web.example:80")
	asks(t, "absent.web.example")
	s := create(t, "--allow", "web.example", "--allow", "absent.web.example")
	for _, tt := range []struct {
		command string
		code    int
		says    string
	}{
		{"wget -T 5 -qO- http://web.example/", 0, "I am " + public},
		{"nslookup -type=a web.example", 0, "Address: 198.1"}, // one of 198.18.0.0/15, which stands for the name
		{"wget -T 5 -O- http://absent.web.example/", 1, "bad address"},
		{"wget -T 5 -O- http://other.example/", 1, "bad address"},
		{"nslookup -type=a absent.web.example", 1, "NXDOMAIN"},
		{"nslookup -type=a other.example", 1, "NXDOMAIN"},
	} {
		begin := time.Now()
		r := s.of.Try("exec", "--timeout", "20s", s.id, "--", "sh", "-c", tt.command)
		if r.Code != tt.code || !strings.Contains(r.Stdout+r.Stderr, tt.says) {
			t.Errorf("%s: code %d, %q, %q; want %d and %q", tt.command, r.Code, r.Stdout, r.Stderr, tt.code, tt.says)
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("%s took %v", tt.command, took)
		}
	}
}
