package posture

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// wantNodes are the device nodes that a sandbox has, by name.
const wantNodes = "full 1:7, null 1:3, random 1:8, tty 5:0, urandom 1:9, zero 1:5"

// compareDev: the nodes are on a file system of the sandbox's own. Locks and watches
// on the host's would reach the host and other sandboxes.
func compareDev(w want) []Result {
	own := hostSource(w, devDir(w.Spec))
	on := "own file system"
	if shared := hostSource(w, "/dev"); own.root != "/dev" || own.device == shared.device {
		on = "shared file system " + own.device + ":" + own.root
	}
	return []Result{equal("device nodes", wantNodes+" on own file system", w.host.nodes+" on "+on)}
}

// devDir is the directory that is bound to /dev, "" where none is.
func devDir(spec *specs.Spec) string {
	for _, m := range spec.Mounts {
		if m.Destination == "/dev" && m.Type == "bind" {
			return m.Source
		}
	}
	return ""
}

// devNodes lists the special files in dir, sorted by name, in the form of wantNodes.
func devNodes(dir string) (string, error) {
	if dir == "" {
		return none, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("read the device nodes: %w", err)
	}
	var nodes []string
	for _, e := range entries {
		if e.IsDir() || e.Type()&os.ModeSymlink != 0 {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return "", fmt.Errorf("read the device nodes: %w", err)
		}
		text := e.Name() + " " + info.Mode().String()
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Mode == unix.S_IFCHR|0o666 {
			text = fmt.Sprintf("%s %d:%d", e.Name(), unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		nodes = append(nodes, text)
	}
	return strings.Join(nodes, ", "), nil
}
