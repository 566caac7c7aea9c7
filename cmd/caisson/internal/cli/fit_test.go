package cli

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	long := strings.Repeat("word ", 40)
	got := fit("One.\nTwo.\n\n" + long + "\n\nA list:\n  - stays " + long)
	lines := strings.Split(got, "\n")
	if lines[0] != "One. Two." || len(lines[2]) > helpWidth || len(lines[2]) < helpWidth-6 || !strings.Contains(got, "A list:\n  - stays "+strings.TrimSpace(long)) {
		t.Errorf("%q", got)
	}
}
