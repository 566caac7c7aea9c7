package stray

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/sbxerr"
)

// What left is told from what was refused by the group alone. Only what the host's rules
// know, and those of the namespace do not, is asked for.
func TestLink(t *testing.T) {
	local := func(a netip.Addr) (bool, error) {
		if a == netip.MustParseAddr("9.9.9.1") {
			return true, errors.New("nobody knows")
		}
		return a == netip.MustParseAddr("8.8.4.4"), nil
	}
	c := Config{Sandbox: "a", Rules: Link{Local: local}}
	read := time.Now()
	for _, tt := range []struct {
		protocol byte
		to       string
		passed   bool
		want     proxy.Attempt // refused if it has a code
		says     string
	}{
		{unix.IPPROTO_TCP, "1.1.1.1:443", true, proxy.Attempt{Rule: "mode bridge"}, ""},
		{unix.IPPROTO_UDP, "1.1.1.1:443", true, proxy.Attempt{Protocol: "udp", Rule: "mode bridge"}, ""},
		{unix.IPPROTO_ICMP, "1.1.1.1:0", true, proxy.Attempt{Protocol: "icmp", Rule: "mode bridge"}, ""},
		{unix.IPPROTO_UDP, "10.0.0.53:53", true, proxy.Attempt{Protocol: "udp", Rule: "network.bridge.dns"}, ""},
		{unix.IPPROTO_TCP, "9.9.9.1:443", true, proxy.Attempt{Rule: "mode bridge"}, ""},
		{unix.IPPROTO_TCP, "8.8.4.4:22", true, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "8.8.4.4:22 is refused: the address is the host's own"},
		{unix.IPPROTO_TCP, "10.0.0.53:80", false, proxy.Attempt{Rule: "mode bridge: 10.0.0.0/8", Code: sbxerr.EgressDenied}, "10.0.0.53:80 is refused: private"},
		{unix.IPPROTO_ICMP, "169.254.169.254:0", false, proxy.Attempt{Protocol: "icmp", Rule: "mode bridge: 169.254.0.0/16", Code: sbxerr.EgressDenied}, "icmp to 169.254.169.254 is refused: link-local"},
		{unix.IPPROTO_TCP, "[2606:4700::1]:443", false, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "no IPv6"},
		{unix.IPPROTO_TCP, "1.1.1.1:443", false, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "own address"},
	} {
		to := netip.MustParseAddrPort(tt.to)
		got := c.attempt(nflog.Packet{Protocol: tt.protocol, Destination: to, Opens: true, Passed: tt.passed, Read: read}, 3)
		tt.want.Sandbox, tt.want.Asked, tt.want.Left, tt.want.Skipped = "a", to, tt.passed, 3
		tt.want.Verdict, tt.want.Reason, tt.want.Begun, tt.want.Before = proxy.Refused, got.Reason, read, read
		if tt.want.Code == "" {
			tt.want.Verdict, tt.want.Address = proxy.Allowed, to
		}
		if got != tt.want || !strings.Contains(got.Reason, tt.says) || (tt.says == "") != (got.Reason == "") {
			t.Errorf("%d to %s: %+v, want %+v that says %q", tt.protocol, to, got, tt.want, tt.says)
		}
	}
}

// The end of what left says how much it was. What the host refused has none.
func TestEnds(t *testing.T) {
	var records recorder
	c := Config{Sandbox: "a", Recorder: &records, Rules: Link{Local: func(a netip.Addr) (bool, error) { return a == netip.MustParseAddr("8.8.4.4"), nil }}}
	begun := time.Now().Add(-time.Hour)
	f := &nflog.Flow{Sent: 7, Received: math.MaxUint64, Begun: begun, Ended: begun.Add(time.Minute)}
	most := rate.NewLimiter(0, 3)
	for _, to := range []string{"8.8.4.4:22", "1.1.1.1:443", "1.1.1.1:443", "9.9.9.9:443"} {
		c.recordEnd(nflog.Packet{Protocol: unix.IPPROTO_TCP, Destination: netip.MustParseAddrPort(to), Passed: true, Ended: f, Read: time.Now()}, most)
		f = &nflog.Flow{Begun: begun, Ended: begun.Add(-time.Minute)} // of a clock that was set
	}
	to := netip.MustParseAddrPort("1.1.1.1:443")
	want := proxy.Attempt{Sandbox: "a", Asked: to, Address: to, Rule: "mode bridge", Left: true, Ended: true, Verdict: proxy.Allowed, Begun: begun, After: begun, Before: begun}
	if len(records) != 2 || records[0] != want || records[1] != want {
		t.Errorf("%+v, want %+v twice", records, want)
	}
	records = nil
	c.recordEnd(nflog.Packet{Protocol: unix.IPPROTO_UDP, Destination: to, Passed: true, Ended: &nflog.Flow{Sent: 7, Received: math.MaxUint64, Begun: begun, Ended: begun.Add(time.Minute)}}, rate.NewLimiter(0, 1))
	want.Protocol, want.Sent, want.Received, want.Duration = "udp", 7, math.MaxInt64, time.Minute
	if len(records) != 1 || records[0] != want {
		t.Errorf("%+v, want %+v", records, want)
	}
}

type recorder []proxy.Attempt

func (r *recorder) Record(a proxy.Attempt) { *r = append(*r, a) }
