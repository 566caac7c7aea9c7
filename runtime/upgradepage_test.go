package runtime

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/initproto"
)

// The page about upgrades says which sandboxes this version adopts.
func TestUpgradePageNamesTheVersions(t *testing.T) {
	page, err := os.ReadFile("../docs/how-to/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| records of sandboxes | %d; %d of a child with a network | %[1]d, %[2]d |", recordVersion, childRecordVersion),
		fmt.Sprintf("| protocol with PID 1 of a sandbox | %d | %[1]d |", initproto.Version),
	} {
		if !strings.Contains(string(page), row) {
			t.Errorf("the page lacks %q", row)
		}
	}
}
