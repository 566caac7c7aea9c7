package main

import (
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	got := summarize(took)
	want := Summary{N: 200, Min: 1, P50: 100, P90: 180, P95: 190, P99: 198}
	if got != want {
		t.Errorf("summarize(200..1 ms) = %+v, want %+v", got, want)
	}
	if took[0] != 200*time.Millisecond {
		t.Error("the series was put in another order")
	}
	if got := summarize(nil); got != (Summary{}) {
		t.Errorf("summarize(nil) = %+v", got)
	}
}

func TestRatioOfPairs(t *testing.T) {
	a := []time.Duration{1, 20, 300, 4}
	b := []time.Duration{2, 10, 400, 4}
	if got := ratioOfPairs(a, b); got != 0.75 { // of 0.5, 0.75, 1, 2
		t.Errorf("ratio %v, want 0.75", got)
	}
	if got := ratioOfPairs(a, nil); got != 0 {
		t.Errorf("ratio to nothing %v, want 0", got)
	}
}
