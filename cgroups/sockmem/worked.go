package sockmem

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/kernelfile"
)

// Worked is the processor time that the processes of all sandboxes have had. The kernel
// counts it for a running process at each tick of the clock.
func (w *Watch) Worked() (time.Duration, error) {
	text, err := kernelfile.Read(filepath.Join(w.group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	return parseWorked(text)
}

// parseWorked reads the first line of cpu.stat, such as "usage_usec 209350".
func parseWorked(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	number, ok := strings.CutPrefix(line, "usage_usec ")
	if !ok {
		return 0, fmt.Errorf("read the time of processes: %q does not tell it", line)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the time of processes: %w", err)
	}
	return time.Duration(n) * time.Microsecond, nil
}
