package main

import (
	"strings"
	"testing"
)

// A table that is wider than the screen goes on below, in its widest columns, and loses nothing.
func TestTableFits(t *testing.T) {
	rows := [][]string{{"a", strings.Repeat("word ", 30), "7"}, {strings.Repeat("n", 50), "short", "100"}}
	var wide, narrow strings.Builder
	for width, to := range map[int]*strings.Builder{0: &wide, 80: &narrow} {
		if err := writeTable(to, []string{"NAME", "REMEDY", "N"}, rows, width); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(wide.String(), "\n") != 3 {
		t.Errorf("without a width:\n%s", &wide)
	}
	for line := range strings.Lines(narrow.String()) {
		if len(line) > 81 || strings.Count(narrow.String(), "word") != 30 || strings.Count(narrow.String(), "n") != 50 {
			t.Errorf("%d columns:\n%s", len(line), &narrow)
		}
	}
}
