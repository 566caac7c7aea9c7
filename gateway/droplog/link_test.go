package droplog

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns/nflog"
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
		group    nflog.Group
		want     proxy.Attempt // refused if it has a code
		says     string
	}{
		{unix.IPPROTO_TCP, "1.1.1.1:443", nflog.Passed, proxy.Attempt{Rule: "mode bridge"}, ""},
		{unix.IPPROTO_UDP, "1.1.1.1:443", nflog.Passed, proxy.Attempt{Protocol: "udp", Rule: "mode bridge"}, ""},
		{unix.IPPROTO_ICMP, "1.1.1.1:0", nflog.Passed, proxy.Attempt{Protocol: "icmp", Rule: "mode bridge"}, ""},
		{unix.IPPROTO_UDP, "10.0.0.53:53", nflog.Passed, proxy.Attempt{Protocol: "udp", Rule: "network.bridge.dns"}, ""},
		{unix.IPPROTO_TCP, "9.9.9.1:443", nflog.Passed, proxy.Attempt{Rule: "mode bridge"}, ""},
		{unix.IPPROTO_TCP, "8.8.4.4:22", nflog.Passed, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "8.8.4.4:22 is refused: the address is the host's own"},
		{unix.IPPROTO_TCP, "10.0.0.53:80", nflog.Refused, proxy.Attempt{Rule: "mode bridge: 10.0.0.0/8", Code: sbxerr.EgressDenied}, "10.0.0.53:80 is refused: private"},
		{unix.IPPROTO_ICMP, "169.254.169.254:0", nflog.Refused, proxy.Attempt{Protocol: "icmp", Rule: "mode bridge: 169.254.0.0/16", Code: sbxerr.EgressDenied}, "icmp to 169.254.169.254 is refused: link-local"},
		{unix.IPPROTO_TCP, "[2606:4700::1]:443", nflog.Refused, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "no IPv6"},
		{unix.IPPROTO_TCP, "1.1.1.1:443", nflog.Refused, proxy.Attempt{Rule: "mode bridge", Code: sbxerr.EgressDenied}, "own address"},
		{unix.IPPROTO_TCP, "1.1.1.1:443", nflog.Limited, proxy.Attempt{Rule: "limit of connections", Code: sbxerr.EgressBusy}, "as many connections"},
		{unix.IPPROTO_UDP, "10.0.0.53:53", nflog.Limited, proxy.Attempt{Protocol: "udp", Rule: "limit of connections", Code: sbxerr.EgressBusy}, "udp to 10.0.0.53:53 is refused"},
	} {
		to := netip.MustParseAddrPort(tt.to)
		got := c.attempt(nflog.Packet{Protocol: tt.protocol, Destination: to, Group: tt.group, Opens: true, Read: read}, 3)
		tt.want.Sandbox, tt.want.Asked, tt.want.Left, tt.want.Skipped = "a", to, tt.group == nflog.Passed, 3
		tt.want.Verdict, tt.want.Reason, tt.want.Begun = proxy.Refused, got.Reason, read
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
	l := newEnds(Config{Sandbox: "a", Recorder: &records, Rules: Link{Local: func(a netip.Addr) (bool, error) { return a == netip.MustParseAddr("8.8.4.4"), nil }}})
	l.most = rate.NewLimiter(0, 2)
	now, begun := time.Now(), time.Now().Add(-time.Hour)
	to := netip.MustParseAddrPort("1.1.1.1:443")
	flow := nflog.Flow{Protocol: unix.IPPROTO_UDP, Destination: to, Sent: 7, Received: math.MaxUint64, Begun: begun, Ended: begun.Add(time.Minute)}
	want := proxy.Attempt{
		Sandbox: "a", Protocol: "udp", Asked: to, Address: to, Rule: "mode bridge", Left: true, Ended: true, Verdict: proxy.Allowed,
		Sent: 7, Received: math.MaxInt64, Begun: begun, Duration: time.Minute,
	}
	own := flow
	own.Destination = netip.MustParseAddrPort("8.8.4.4:22")
	l.take(own, now)
	l.take(flow, now)
	flow.Ended = begun.Add(-time.Minute) // of a clock that was set
	l.take(flow, now)
	l.flush()
	if len(records) != 2 || records[0] != want || records[1].Duration != 0 {
		t.Errorf("%+v, want %+v, and once more without a duration", records, want)
	}
	for range 3 { // which are too many
		l.take(own, now)
		l.take(flow, now)
	}
	l.flush()
	l.flush()
	want = proxy.Attempt{Sandbox: "a", Rule: "mode bridge", Left: true, Ended: true, Verdict: proxy.Allowed, Sent: 21, Received: math.MaxInt64, Begun: now, Skipped: 3}
	if len(records) != 3 || records[2] != want {
		t.Errorf("%+v, want %+v in the end", records, want)
	}
}
