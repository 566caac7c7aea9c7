//go:build failpoints

package shimcall

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Failpoint does what the file "failpoint" beside the program says, if it names
// point: POINT=kill ends the program with SIGKILL, POINT=wait has it wait. The file
// gets the name "failpoint.PID" by that, so one call does what it says, and one that
// waits does so until it is removed.
func Failpoint(point string) {
	own, err := os.Executable()
	if err != nil {
		return
	}
	file := filepath.Join(filepath.Dir(own), "failpoint")
	armed, err := os.ReadFile(file)
	if err != nil {
		return
	}
	name, action, _ := strings.Cut(string(armed), "=")
	mine := file + "." + strconv.Itoa(os.Getpid())
	if name != point || os.Rename(file, mine) != nil {
		return
	}
	if action == "kill" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	for err == nil {
		time.Sleep(time.Millisecond)
		_, err = os.Stat(mine)
	}
}
