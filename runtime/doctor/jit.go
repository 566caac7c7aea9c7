package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// filterSize is twice what the kernel compiles the system call filter of one sandbox
// to on x86-64 (7 KiB): some of the limit is for the host's own filters.
const filterSize = 16 << 10

// jitLimit bounds the memory of compiled filters of the whole host, in bytes.
const jitLimit = "/proc/sys/net/core/bpf_jit_limit"

func examineJIT(_ context.Context, h Host) []runtime.Check {
	const name = "memory of filters"
	text, err := os.ReadFile(jitLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return ok(name, "filters are not compiled on this kernel")
	}
	if err != nil {
		return problem(name, Unknown, sbxerr.SeccompMemory, err)
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return problem(name, Unknown, sbxerr.SeccompMemory, fmt.Errorf("read %s: %w", jitLimit, err))
	}
	return judgeJIT(name, limit, h.MaxSandboxes)
}

func judgeJIT(name string, limit int64, sandboxes int) []runtime.Check {
	need := int64(sandboxes) * filterSize
	if limit < need {
		return problem(name, Warn, sbxerr.SeccompMemory,
			fmt.Errorf("net.core.bpf_jit_limit is %d bytes; %d sandboxes (sandboxes.max) need %d", limit, sandboxes, need))
	}
	return ok(name, fmt.Sprintf("net.core.bpf_jit_limit is %d bytes, enough for %d sandboxes", limit, sandboxes))
}
