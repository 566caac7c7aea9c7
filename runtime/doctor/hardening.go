package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/runtime"
)

// hardening are settings of the host that narrow what a flaw in the kernel
// could be used for. A sandbox does not depend on them.
var hardening = []struct {
	sysctl string
	least  int
	why    string
}{
	{"kernel.unprivileged_bpf_disabled", 1, "keeps bpf(2) from users without rights"},
	{"kernel.kptr_restrict", 1, "hides kernel addresses"},
	{"kernel.yama.ptrace_scope", 1, "keeps processes of one user from tracing each other"},
	{"kernel.dmesg_restrict", 1, "hides the kernel's log"},
	{"vm.unprivileged_userfaultfd", 0, "0 keeps userfaultfd(2) from users without rights"},
}

func examineHardening(context.Context, Host) []runtime.Check { return judgeHardening(os.ReadFile) }

func judgeHardening(read func(path string) ([]byte, error)) []runtime.Check {
	var weak []string
	for _, s := range hardening {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(s.sysctl, ".", "/"))
		data, err := read(path)
		if err != nil {
			continue // not a feature of this kernel
		}
		value, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || value < s.least || (s.least == 0 && value != 0) {
			weak = append(weak, fmt.Sprintf("%s is %s (%s)", s.sysctl, strings.TrimSpace(string(data)), s.why))
		}
	}
	if len(weak) == 0 {
		return ok("host hardening", "all that is looked at is set")
	}
	return []runtime.Check{{Name: "host hardening", Status: Warn, Detail: strings.Join(weak, "; "), Remedy: "set them by sysctl; sandboxes do not depend on them"}}
}
