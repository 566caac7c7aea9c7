package bound

import (
	"testing"
	"time"
)

var kept []byte

// What takes too much is told from what does not.
func TestCost(t *testing.T) {
	if cpu, memory := least(CPU, Memory, func() {}); cpu > CPU || memory > Memory {
		t.Errorf("nothing takes %s and %d bytes", cpu, memory)
	}
	if cpu, _ := least(CPU, Memory, func() {
		for begun := used(); used()-begun < CPU+10*time.Millisecond; {
		}
	}); cpu <= CPU {
		t.Errorf("a loop takes %s", cpu)
	}
	if _, memory := least(CPU, Memory, func() { kept = make([]byte, Memory+1) }); memory <= Memory {
		t.Errorf("too much takes %d bytes", memory)
	}
}
