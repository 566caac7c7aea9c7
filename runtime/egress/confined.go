package egress

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
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
		f, err := os.Open(tasks + "/" + t.Name() + "/status")
		if err != nil {
			continue // a thread that ended
		}
		errs = append(errs, checkStatus(f, uid, gid), f.Close())
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

// checkStatus compares what proc(5) says of a thread with what it must be.
func checkStatus(f *os.File, uid, gid uint32) error {
	const none = "0000000000000000"
	four := func(id uint32) string {
		return strings.Join(strings.Fields(strings.Repeat(fmt.Sprint(id, " "), 4)), "\t")
	}
	want := map[string]string{
		"Uid": four(uid), "Gid": four(gid), "Groups": "", "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	}
	var errs []error
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		if must, known := want[key]; known && value != must {
			errs = append(errs, fmt.Errorf("%s is %q, not %q", key, value, must))
		}
		delete(want, key)
	}
	for key := range want {
		errs = append(errs, fmt.Errorf("the kernel does not say %s", key))
	}
	return errors.Join(append(errs, lines.Err())...)
}
