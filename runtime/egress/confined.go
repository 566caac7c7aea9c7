package egress

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/caisson-run/caisson/kernelfile"
)

// checkConfined asks the kernel what the process pid may still do. The program
// said that it gave everything up; it gets no socket before that is seen.
func checkConfined(pid int, uid, gid uint32) error {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return fmt.Errorf("look at the gateway: %w", err)
	}
	var errs []error
	for _, t := range threads {
		status, err := kernelfile.Read(tasks + "/" + t.Name() + "/status")
		if err != nil {
			continue // a thread that ended
		}
		errs = append(errs, checkStatus(status, uid, gid))
	}
	left, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("its root is not empty: %q is there", left[0].Name())
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("the gateway is not confined: %w", err)
	}
	return nil
}

// checkStatus expects lines in the status of a thread (proc(5)).
func checkStatus(status string, uid, gid uint32) error {
	const none = "0000000000000000"
	four := func(id uint32) string { return fmt.Sprintf("%d\t%d\t%d\t%d", id, id, id, id) }
	var errs []error
	for key, want := range map[string]string{
		"Uid": four(uid), "Gid": four(gid), "Groups": "", "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		_, rest, known := strings.Cut("\n"+status, "\n"+key+":")
		value, _, _ := strings.Cut(rest, "\n")
		if value = strings.TrimSpace(value); !known || value != want {
			errs = append(errs, fmt.Errorf("%s is %q, not %q", key, value, want))
		}
	}
	return errors.Join(errs...)
}
