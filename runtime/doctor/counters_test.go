package doctor

import (
	"math"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestJudgeOwnFiles(t *testing.T) {
	for _, tt := range []struct {
		hard   uint64
		status string
		code   sbxerr.Code
	}{
		{ownFiles + 100*leastFiles - 1, Fail, sbxerr.DaemonConf},
		{ownFiles + 100*leastFiles, Warn, sbxerr.NoFiles},
		{ownFiles + 100*usualFiles - 1, Warn, sbxerr.NoFiles},
		{ownFiles + 100*usualFiles, OK, ""},
		{math.MaxUint64, OK, ""}, // unlimited
	} {
		c := one(t, judgeOwnFiles(tt.hard, 100))
		if c.Status != tt.status || c.Code != string(tt.code) || !strings.Contains(c.Detail, "100 sandboxes (sandboxes.max)") {
			t.Errorf("%d: %+v", tt.hard, c)
		}
		if tt.status != OK && !strings.Contains(c.Remedy, "LimitNOFILE") {
			t.Errorf("%d: remedy %q", tt.hard, c.Remedy)
		}
	}
}

func TestJudgeCounter(t *testing.T) {
	for _, tt := range []struct {
		limit, each int64
		sandboxes   int
		status      string
	}{
		{32768, 256, 128, Warn}, // nothing is left to the host
		{32768, 256, 127, OK},
		{math.MaxInt64, 1 << 40, 512, OK},
		{math.MaxInt64, math.MaxInt64, 2, Warn},
		{1, 256, 0, OK},
	} {
		c := one(t, judgeCounter("kernel.pid_max", "processes", tt.limit, tt.each, tt.sandboxes, sbxerr.Processes))
		if c.Status != tt.status {
			t.Errorf("%+v: %+v", tt, c)
		}
	}
	c := one(t, judgeCounter("kernel.pid_max", "processes", 32768, 256, 512, sbxerr.Processes))
	if !strings.Contains(c.Remedy, "sysctl -w kernel.pid_max=262144 ") || c.Code != "SBX-116" {
		t.Errorf("%+v", c)
	}
}
