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
