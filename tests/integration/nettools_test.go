package integration

import (
	"strings"
	"testing"
	"time"
)

// The network tools of the image base say why they fail, and end by themselves. Debian's
// static busybox dies by a signal on each wget -T.
func TestNetworkToolsFailReadably(t *testing.T) {
	box(t, daemon, "web", "--expose", "8080")
	daemon.Run(t, "exec", "-d", "web", "--", "sh", "-c", "echo page > /tmp/page; exec httpd -f -p 127.0.0.1:8080 -h /tmp")
	box(t, daemon, "tools", "--link", "web=web:8080")
	box(t, daemon, "alone")
	await(t, "the server", func() bool {
		return daemon.Try("exec", "tools", "--", "wget", "-qO-", "http://web:8080/page").Stdout == "page\n"
	})
	if r := daemon.Try("exec", "tools", "--", "wget", "-T", "5", "-qO-", "http://web:8080/page"); r.Code != 0 || r.Stdout != "page\n" {
		t.Errorf("the control: code %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	daemon.Run(t, "exec", "-d", "alone", "--", "sh", "-c", "sleep 1000 | nc -l -p 9000")
	for _, tt := range []struct{ box, command, says string }{
		{"alone", "wget -O- http://127.0.0.1:1/", "Connection refused"},
		{"alone", "wget -T 5 -O- http://127.0.0.1:1/", "Connection refused"},
		{"alone", "wget -T 1 -O- http://127.0.0.1:9000/", "timed out"},
		{"alone", "wget -T 5 -O- http://nobody.example/", "bad address"},
		{"alone", "wget -T 5 -O- http://198.51.100.1/", "Network is unreachable"},
		{"alone", "nc -w 1 127.0.0.1 1", "Connection refused"},
		{"alone", "telnet 127.0.0.1 1", "Connection refused"},
		{"alone", "ftpget 127.0.0.1 x", "Connection refused"},
		{"alone", "ping -c 1 -W 1 127.0.0.1", "denied"},
		{"tools", "wget -T 5 -O- http://nobody.example/", "bad address"},
		{"tools", "wget -T 5 -O- https://nobody.example/", "bad address"},
		{"tools", "wget -T 5 -O- http://web:8080/absent", "404 Not Found"},
		{"tools", "wget -T 5 -O- http://198.51.100.1/", "can't connect"},
		{"tools", "nslookup nobody.example", "NXDOMAIN"},
	} {
		begin := time.Now()
		r := daemon.Try("exec", "--timeout", "20s", tt.box, "--", "sh", "-c", tt.command+" </dev/null")
		if r.Code == 0 || r.Code > 2 || !strings.Contains(r.Stdout+r.Stderr, tt.says) {
			t.Errorf("%s: %s: code %d, %q, %q; want %q", tt.box, tt.command, r.Code, r.Stdout, r.Stderr, tt.says)
		}
		if took := time.Since(begin); took > 4*time.Second { // musl would wait five for a resolver that is not there
			t.Errorf("%s: %s took %v", tt.box, tt.command, took)
		}
	}
}
