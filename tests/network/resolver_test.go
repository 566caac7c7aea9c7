package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// otherResolver is one that sandboxes may choose.
const otherResolver = "127.0.0.54"

// A sandbox has the resolver that it chose among those of the operator, also out of the pool
// and after an update. Others do not have its names.
func TestChosenResolver(t *testing.T) {
	packet, err := host.listenPacket(otherResolver + ":53")
	if err != nil {
		t.Fatal(err)
	}
	other := newZone()
	other.set("only.example", elsewhere)
	go other.serve(packet)
	for _, kind := range []string{"A", "AAAA"} {
		host.lookout.expect(t, host.sends(question(kind, "only.example", otherResolver), netip.MustParseAddr(otherResolver)))
	}
	asks(t, "only.example")
	reaches(t, elsewhere+":80")

	d := launch(t, fmt.Sprintf("network: {dns: [%s], dns_allowed: [%s]}\npools: [{size: 1}]\n", resolver, otherResolver))
	ready(t, d, "strict")
	mounted := clientDir(t) + ":ro"
	get := func(flags ...string) string {
		args := append([]string{"run", "--workspace", mounted, "--allow", "only.example"}, flags...)
		return d.Try(append(args, "--", "/workspace/client", "http", "http://only.example/")...).Stdout
	}
	if said := get(); !strings.Contains(said, "error:") {
		t.Fatalf("by the common resolver: %q", said)
	}
	for range 2 { // out of the pool, and made for it
		if said := get("--dns", otherResolver); !strings.HasPrefix(said, "200 I am "+elsewhere) {
			t.Errorf("by the chosen one: %q", said)
		}
	}
	s := sandbox{strings.TrimSpace(d.Run(t, "create", "--workspace", mounted, "--dns", otherResolver, "--allow", "only.example").Stdout), d}
	defer d.Run(t, "rm", "-f", s.id)
	if said := d.Run(t, "policy", "explain", s.id).Stdout; !strings.Contains(said, "resolver "+otherResolver+":53") {
		t.Errorf("explain: %s", said)
	}
	d.Run(t, "update", "--allow", "only.example", "--allow", "web.example", s.id)
	if said := s.try("http", "http://only.example/"); !strings.HasPrefix(said, "200 I am "+elsewhere) {
		t.Errorf("after an update: %q", said)
	}
	for flags, word := range map[string]string{
		"--allow only.example --dns 192.0.2.53":                       "choose among",
		"--allow only.example --dns nobody":                           "is no ADDRESS",
		"--dns " + otherResolver:                                      `mode "none"`,
		strings.Repeat("--dns "+otherResolver+" ", 4) + "--allow a.b": "more than 3",
	} {
		f := d.Refused(t, "SBX-404", append([]string{"create", "--json"}, strings.Fields(flags)...)...)
		if said := f.Error.Message + f.Error.Cause + f.Error.Remedy; !strings.Contains(said, word) {
			t.Errorf("%s: %+v", flags, f.Error)
		}
	}
}
