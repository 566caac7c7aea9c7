package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// errCovers is a directory with mounts below it.
var errCovers = errors.New("something is mounted below it, which would be uncovered; name a directory without mounts")

// coversNothing refuses a directory that has a mount below it. The kernel hides
// what lies under a mount from unprivileged users for good reason
// (mount_namespaces(7), locked mounts); a clone of the directory alone shows it.
func coversNothing(dir *os.File) error {
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return fmt.Errorf("ask where it is: %w", err)
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	below, err := mountBelow(table, path)
	if err := errors.Join(err, table.Close()); err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	if below != "" {
		return fmt.Errorf("%w (%q)", errCovers, below)
	}
	return nil
}

// mountBelow returns a mount point of table, in the form of
// proc_pid_mountinfo(5), that lies below path; empty where there is none.
func mountBelow(table io.Reader, path string) (string, error) {
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 {
			return "", fmt.Errorf("%q is no line of a mount table", lines.Text())
		}
		if point := unescape(fields[4]); point != path && within(point, path) {
			return point, nil
		}
	}
	return "", lines.Err()
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
