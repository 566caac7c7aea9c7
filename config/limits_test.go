package config

import (
	"testing"

	"github.com/caisson-run/caisson/api/settings"
)

// A profile has a key for each limit, and a peer for each that has a ceiling.
func TestEachLimitHasItsKey(t *testing.T) {
	for i := range settings.Table {
		row := &settings.Table[i]
		if !limitKey(Profile{}, row).IsValid() {
			t.Errorf("a profile has no key %q", row.Key)
		}
		if has := limitKey(PeerLimits{}, row).IsValid(); has != (row.Ceiling != 0) {
			t.Errorf("the limits of a peer have the key %q: %t; its ceiling is %d", row.Key, has, row.Ceiling)
		}
	}
	one := settings.Defaults()
	err := Profile{Memory: "1G", CPUs: "1.5", Files: 99, Tmpfs: "none", IORead: "0"}.Override(&one)
	want := settings.Defaults()
	want.MemoryBytes, want.MilliCPU, want.OpenFiles = 1<<30, 1500, 99
	if one != want || err == nil {
		t.Errorf("limits %+v, %v; want %+v", one, err, want)
	}
}
