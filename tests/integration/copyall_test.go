package integration

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
	"testing"
)

// All of a sandbox can be copied: what is the kernel's, and what its user may not
// read, is left out, and told.
func TestCopyAll(t *testing.T) {
	box(t, daemon, "whole")
	daemon.Run(t, "exec", "whole", "--", "sh", "-c", "mkdir /tmp/a && echo inner > /tmp/a/file && echo closed > /tmp/a/closed && chmod 0 /tmp/a/closed")
	names := func(path string) (list []string, told string) {
		out := daemon.Run(t, "cp", "whole:"+path, "-")
		for r := tar.NewReader(strings.NewReader(out.Stdout)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return list, out.Stderr
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, strings.Trim(strings.TrimPrefix(h.Name, "./"), "/"))
		}
	}
	all, told := names("/")
	if text := " " + strings.Join(all, " ") + " "; !strings.Contains(text, " tmp/a/file ") || strings.Contains(text, "proc/") || strings.Contains(text, "sys/kernel") {
		t.Errorf("copied %.2000s", text)
	}
	if !strings.Contains(told, "left out") {
		t.Errorf("told %q", told)
	}
	part, told := names("/tmp/a")
	if strings.Join(part, " ") != "a a/file" || !strings.Contains(told, `left out "/tmp/a/closed"`) {
		t.Errorf("copied %q, told %q", part, told)
	}
	if status, _ := names("/proc/self/net/dev"); len(status) != 1 { // what is asked for by its name
		t.Errorf("copied %q", status)
	}
}
