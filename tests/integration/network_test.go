package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The mode allow, end to end, with the kernel and the iptables of this host: a name, the
// rules of the namespace and the gateway lead to another sandbox's port, a published
// port leads in, and nothing else is reached. All that the mode promises is tested in
// tests/network.
func TestAllowedAndPublished(t *testing.T) {
	const note = "echo kept > /tmp/note; exec httpd -f -p 127.0.0.1:8080 -h /tmp"
	box(t, daemon, "store", "--expose", "8080", "-p", "0:8080")
	daemon.Run(t, "exec", "-d", "store", "--", "sh", "-c", note)
	host, _, _ := strings.Cut(daemon.Run(t, "port", "store").Stdout, " ")
	answer := ""
	for begin := time.Now(); answer != "kept\n" && time.Since(begin) < 30*time.Second; time.Sleep(50 * time.Millisecond) { // nothing announces that it listens
		answer = fetch("http://" + host + "/note")
	}
	if answer != "kept\n" {
		t.Fatalf("the published port answers %q", answer)
	}
	box(t, daemon, "app", "--link", "db=store:8080")
	out := daemon.Run(t, "exec", "app", "--", "sh", "-c", `
		wget -qO- http://db:8080/note
		nslookup -type=a other.example | grep -o NXDOMAIN
		for to in other.example 192.0.2.1 198.18.77.77 db; do wget -qO- http://$to/ && echo reached $to; done
		echo | nc -w 1 127.0.0.1 8080 && echo reached the port beside the link
		true`).Stdout
	if out != "kept\nNXDOMAIN\n" {
		t.Errorf("inside: %q", out)
	}
	daemon.Run(t, "rm", "--force", "app", "store")
	daemon.AwaitNoSandbox(t)
	if answer := fetch("http://" + host + "/note"); answer != "" {
		t.Errorf("the port of a removed sandbox answers %q", answer)
	}
}

// fetch returns what is there, and nothing where nobody answers.
func fetch(url string) string {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	return string(body)
}
