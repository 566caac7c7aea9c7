package droplog

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/netns/nflog"
)

func TestLink(t *testing.T) {
	c := Config{Sandbox: "a", Rules: Link{}}
	read := time.Now()
	for _, tt := range []struct {
		protocol byte
		to       string
		group    nflog.Group
		want     attempt.Attempt
		says     string
	}{
		{unix.IPPROTO_TCP, "10.0.0.53:80", nflog.Refused, attempt.Attempt{Rule: "mode bridge: 10.0.0.0/8", Code: sbxerr.EgressDenied}, "10.0.0.53:80 is refused: private"},
		{unix.IPPROTO_ICMP, "169.254.169.254:0", nflog.Refused, attempt.Attempt{Protocol: "icmp", Rule: "mode bridge: 169.254.0.0/16", Code: sbxerr.EgressDenied}, "icmp to 169.254.169.254 is refused: link-local"},
		{unix.IPPROTO_TCP, "[2606:4700::1]:443", nflog.Refused, attempt.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "no IPv6"},
		{unix.IPPROTO_TCP, "1.1.1.1:443", nflog.Refused, attempt.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "own address"},
		{unix.IPPROTO_TCP, "1.1.1.1:443", nflog.Limited, attempt.Attempt{Rule: "limit of connections", Code: sbxerr.EgressBusy}, "as many connections"},
		{unix.IPPROTO_UDP, "10.0.0.53:53", nflog.Limited, attempt.Attempt{Protocol: "udp", Rule: "limit of connections", Code: sbxerr.EgressBusy}, "udp to 10.0.0.53:53 is refused"},
	} {
		to := netip.MustParseAddrPort(tt.to)
		got := c.attempt(nflog.Packet{Protocol: tt.protocol, Destination: to, Group: tt.group, Opens: true, Read: read}, 3)
		tt.want.Sandbox, tt.want.Asked, tt.want.Verdict, tt.want.Skipped = "a", to, attempt.Refused, 3
		tt.want.Reason, tt.want.Begun = got.Reason, read
		if got != tt.want || !strings.Contains(got.Reason, tt.says) {
			t.Errorf("%d to %s: %+v, want %+v that says %q", tt.protocol, to, got, tt.want, tt.says)
		}
	}
}
