package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestCopyKeepsHoles: a file that takes no space in the sandbox takes none on the host,
// and the other way round. The tmpfs could not hold the second one otherwise.
func TestCopyKeepsHoles(t *testing.T) {
	box(t, daemon, "holes", "--tmpfs", "16M")
	const size = 64 << 20
	daemon.Run(t, "exec", "holes", "--", "sh", "-c", "truncate -s 64M /tmp/empty; printf x > /tmp/part; truncate -s 64M /tmp/part")
	dir := t.TempDir()
	for _, name := range []string{"empty", "part"} {
		local := filepath.Join(dir, name)
		daemon.Run(t, "cp", "holes:/tmp/"+name, local)
		var st syscall.Stat_t
		if err := syscall.Stat(local, &st); err != nil || st.Size != size || st.Blocks*512 > 1<<20 {
			t.Errorf("%s is %d long and takes %d here, %v", name, st.Size, st.Blocks*512, err)
		}
		daemon.Run(t, "cp", local, "holes:/tmp/back")
		out := daemon.Run(t, "exec", "holes", "--", "sh", "-c", "cmp /tmp/back /tmp/"+name+" && stat -c %b /tmp/back").Stdout
		if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n*512 > 1<<20 {
			t.Errorf("%s takes %q blocks inside, %v", name, out, err)
		}
		if err := os.Remove(local); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyOutIsBounded: a sandbox does not fill the disk of whoever copies files out of it
// with more than it holds, unless the caller asks for that much.
func TestCopyOutIsBounded(t *testing.T) {
	box(t, daemon, "bomb", "-m", "64M", "--tmpfs", "16M")
	daemon.Run(t, "exec", "bomb", "--", "sh", "-c", "mkdir /tmp/links; head -c 1048576 /dev/zero | tr '\\0' x > /tmp/links/0; i=1; while [ $i -lt 200 ]; do ln /tmp/links/0 /tmp/links/$i; i=$((i+1)); done; truncate -s 3G /tmp/hole")
	dir := t.TempDir()
	for _, name := range []string{"links", "hole"} {
		r := daemon.Try("cp", "bomb:/tmp/"+name, filepath.Join(dir, name))
		if r.Code != 125 || !strings.Contains(r.Stderr, "SBX-223") || !strings.Contains(r.Stderr, "--max-bytes") {
			t.Errorf("%s: %d, %q", name, r.Code, r.Stderr)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", name, left, err)
		}
	}
	daemon.Run(t, "cp", "--max-bytes", "200M", "bomb:/tmp/links", dir)
	if all, err := os.ReadDir(filepath.Join(dir, "links")); err != nil || len(all) != 200 {
		t.Errorf("asked for, %d files came, %v", len(all), err)
	}
	daemon.Run(t, "cp", "bomb:/usr", filepath.Join(dir, "usr")) // of the image
	for _, args := range [][]string{{"--max-bytes", "0", "bomb:/tmp/hole", dir}, {"--max-bytes", "1G", dir, "bomb:/tmp"}} {
		if r := daemon.Try(append([]string{"cp"}, args...)...); r.Code == 0 {
			t.Errorf("cp %q is accepted", args)
		}
	}
}
