package doctor

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Each sandbox has a filter, and the host has to have room for all of them.
func TestJudgeJIT(t *testing.T) {
	for _, tt := range []struct {
		limit     int64
		sandboxes int
		status    string
	}{
		{500 * filterSize, 500, OK},
		{500*filterSize - 1, 500, Warn},
		{1, 0, OK},
	} {
		c := judgeJIT("memory of filters", tt.limit, tt.sandboxes)
		if len(c) != 1 || c[0].Status != tt.status {
			t.Errorf("%d bytes, %d sandboxes: %+v", tt.limit, tt.sandboxes, c)
		}
		if tt.status == Warn && (c[0].Code != string(sbxerr.SeccompMemory) || !strings.Contains(c[0].Remedy, "bpf_jit_limit")) {
			t.Errorf("%+v", c[0])
		}
	}
}
