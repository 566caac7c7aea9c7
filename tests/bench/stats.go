package main

import (
	"math"
	"slices"
	"time"
)

// Summary describes a series of durations, in milliseconds.
type Summary struct {
	N   int     `json:"n"`
	Min float64 `json:"min_ms"`
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
}

// summarize leaves the order of took alone: it may pair with another series.
func summarize(took []time.Duration) Summary {
	ms := make([]float64, len(took))
	for i, d := range took {
		ms[i] = milliseconds(d)
	}
	slices.Sort(ms)
	return Summary{N: len(ms), Min: quantile(ms, 0), P50: quantile(ms, 0.5), P90: quantile(ms, 0.9), P95: quantile(ms, 0.95), P99: quantile(ms, 0.99)}
}

// quantile returns the smallest of the sorted values that is not exceeded by
// the fraction q of them (nearest rank): a value that was measured, never one
// between two.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// ratioOfPairs is the median of a[i]/b[i]. The two were measured right after
// one another, so what else the machine did weighs on both alike.
func ratioOfPairs(a, b []time.Duration) float64 {
	ratios := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, float64(a[i])/float64(b[i]))
	}
	slices.Sort(ratios)
	return round(quantile(ratios, 0.5))
}

func milliseconds(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

// round keeps three decimals: no figure here is good for more.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// sortedEnds returns the largest value and the median.
func sortedEnds(values []float64) (largest, median float64) {
	sorted := slices.Sorted(slices.Values(values))
	return quantile(sorted, 1), quantile(sorted, 0.5)
}
