package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/cost/bound"
)

// TestCost: no journal of half a MiB costs more than a request may. The daemon alone writes it.
func TestCost(t *testing.T) {
	for name, line := range map[string]string{
		"short": `{"number":1,"value":{}}` + "\n", "gone": `{"number":1}` + "\n", "empty": "{}\n", "deep": strings.Repeat("[", 9000) + "\n",
		"many values": `{"number":1,"value":{` + strings.Repeat(`"a":"b",`, 1000) + `"a":"b"}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "j")
			text := strings.Repeat(line, bound.Size/2/len(line))
			bound.Check(t, len(text), func() {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				_, _ = New[map[string]string](path).Load() // it may be broken
			})
		})
	}
}
