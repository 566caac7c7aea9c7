package doctor

import (
	"net/netip"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
)

// Nothing is said of a mode that is not offered; of one that is, what would
// happen.
func TestBridge(t *testing.T) {
	if found := examineBridge(t.Context(), Host{}); len(found) != 0 {
		t.Errorf("not offered: %+v", found)
	}
	offered := Host{Bridge: netns.BridgeConfig{Subnet: netip.MustParsePrefix("10.87.0.0/16")}}
	got := one(t, examineBridge(t.Context(), offered))
	if err := offered.Bridge.Ready(); err == nil {
		if got.Status != OK {
			t.Errorf("on a host that forwards: %+v", got)
		}
	} else if got.Status != Warn || got.Code != string(sbxerr.NetworkMode) || got.Remedy == "" {
		t.Errorf("on a host that does not: %+v", got)
	}
}
