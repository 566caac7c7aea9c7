package cgroups

import "testing"

// The values are those of runc 1.3 (ConvertCPUSharesToCgroupV2Value).
func TestWeightOfShares(t *testing.T) {
	for shares, want := range map[int64]int64{0: 100, 2: 1, 3: 2, 512: 59, 1024: 100, 2048: 174, 262144: 10000} {
		if got := (Limits{CPUShares: shares}).weight(); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
	}
}
