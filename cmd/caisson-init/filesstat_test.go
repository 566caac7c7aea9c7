package main

import (
	"math"
	"syscall"
	"testing"
	"time"
)

// A time that no answer of the API can hold is told as the nearest that one can.
func TestTimesAreBounded(t *testing.T) {
	for sec, year := range map[int64]int{math.MinInt64: 1, -1: 1969, 0: 1970, math.MaxInt64: 9999} {
		i := infoOf(&syscall.Stat_t{Mtim: syscall.Timespec{Sec: sec}})
		if got := time.Unix(i.Mtime, 0).UTC().Year(); got != year {
			t.Errorf("%d is told as of the year %d, want %d", sec, got, year)
		}
	}
}
