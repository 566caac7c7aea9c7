package droplog

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns/nflog"
)

type names map[netip.Addr]policy.Name

func (n names) Name(a netip.Addr) (policy.Name, bool) { name, ok := n[a]; return name, ok }

func TestAttempt(t *testing.T) {
	p, err := policy.Compile(policy.Spec{Mode: policy.Allow, Allow: []string{"web.example", "192.0.2.0/24:443,private"}, Deny: []string{"9.9.9.9"}})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Sandbox: "a", Rules: Gate{Policy: func() *policy.Policy { return p }, Names: names{netip.MustParseAddr("198.18.0.9"): "web.example"}}}
	read := time.Now()
	for _, tt := range []struct {
		protocol byte
		to       string
		want     attempt.Attempt
		says     string
	}{
		{unix.IPPROTO_TCP, "1.1.1.1:443", attempt.Attempt{Rule: "mode allow", Code: sbxerr.EgressDenied}, "no rule allows"},
		{unix.IPPROTO_TCP, "9.9.9.9:443", attempt.Attempt{Rule: "deny 9.9.9.9", Code: sbxerr.EgressDenied}, "denied"},
		{unix.IPPROTO_TCP, "169.254.169.254:80", attempt.Attempt{Rule: "mode allow", Code: sbxerr.EgressDenied}, "cloud metadata"},
		{unix.IPPROTO_TCP, "[2001:db8::1]:443", attempt.Attempt{Rule: "mode allow", Code: sbxerr.EgressDenied}, "IPv6"},
		{unix.IPPROTO_TCP, "192.0.2.7:443", attempt.Attempt{Rule: "allow 192.0.2.0/24:443,private", Code: sbxerr.Gateway}, "try again"},
		{unix.IPPROTO_UDP, "8.8.8.8:53", attempt.Attempt{Protocol: "udp", Rule: "mode allow", Code: sbxerr.EgressDenied}, "resolv.conf"},
		{unix.IPPROTO_UDP, "198.18.0.9:443", attempt.Attempt{Protocol: "udp", Name: "web.example", Rule: "mode allow", Code: sbxerr.EgressDenied}, "udp to web.example:443 is refused: only TCP"},
		{unix.IPPROTO_ICMP, "1.1.1.1:0", attempt.Attempt{Protocol: "icmp", Rule: "mode allow", Code: sbxerr.EgressDenied}, "icmp to 1.1.1.1 is refused"},
		{47, "1.1.1.1:0", attempt.Attempt{Protocol: "protocol 47", Rule: "mode allow", Code: sbxerr.EgressDenied}, "protocol 47 to"},
	} {
		to := netip.MustParseAddrPort(tt.to)
		got := c.attempt(nflog.Packet{Protocol: tt.protocol, Destination: to, Opens: true, Read: read}, 3)
		tt.want.Sandbox, tt.want.Asked, tt.want.Verdict, tt.want.Skipped = "a", to, attempt.Refused, 3
		tt.want.Reason, tt.want.Begun = got.Reason, read
		if got != tt.want || !strings.Contains(got.Reason, tt.says) {
			t.Errorf("%d to %s: %+v, want %+v that says %q", tt.protocol, to, got, tt.want, tt.says)
		}
	}
}
