package ctrd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Paths are the directories of one daemon. All that this package makes on the
// host lies below containerd, containerd.log and, in State, runc and s.
type Paths struct {
	Root  string // of the daemon, on disk
	State string // of the daemon, on a tmpfs
}

// maxState is how long State may be, in bytes. A unix socket's path has at most
// 107 (unix(7)), of which a shim's takes 66 below its directory State/s.
const maxState = 40

// Socket is where the private containerd listens.
func (p Paths) Socket() string { return filepath.Join(p.State, "containerd", "containerd.sock") }

// Log is what the private containerd writes, bounded; the file before it ends in ".1".
func (p Paths) Log() string { return filepath.Join(p.Root, "containerd.log") }

// RuncRoot is where runc keeps its state, below it one directory per namespace.
func (p Paths) RuncRoot() string { return filepath.Join(p.State, "runc") }

// ShimSockets is where the shims listen.
func (p Paths) ShimSockets() string { return filepath.Join(p.State, "s") }

// Bundles are where the private containerd keeps something of each container, below
// them one directory per namespace.
func (p Paths) Bundles() []string {
	const plugin = "io.containerd.runtime.v2.task"
	return []string{filepath.Join(p.serverState(), plugin), filepath.Join(p.serverRoot(), plugin)}
}

func (p Paths) serverRoot() string  { return filepath.Join(p.Root, "containerd") }
func (p Paths) serverState() string { return filepath.Join(p.State, "containerd") }

// uploads are what the private containerd has of blobs that do not have all of their bytes.
func (p Paths) uploads() string {
	return filepath.Join(p.serverRoot(), "io.containerd.content.v1.content", "ingest")
}

func (p Paths) config() string { return filepath.Join(p.serverState(), "config.toml") }

// Check refuses directories that a private containerd cannot have.
func (p Paths) Check() error {
	errs := []error{checkPath("root", p.Root), checkPath("state", p.State)}
	if len(p.State) > maxState {
		errs = append(errs, fmt.Errorf("use state %q: longer than %d bytes, too long for the sockets below it", p.State, maxState))
	}
	return sbxerr.Wrap(sbxerr.DaemonConf, "ctrd.paths", errors.Join(errs...))
}

// checkPath refuses what containerd's configuration or an overlay's option string
// could read as something else than a path.
func checkPath(what, path string) error {
	special := func(r rune) bool { return strings.ContainsRune(`:,\"'`, r) || !unicode.IsPrint(r) }
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return fmt.Errorf("use %s %q: not a clean absolute path", what, path)
	case strings.ContainsFunc(path, special):
		return fmt.Errorf(`use %s %q: holds one of : , \ " ' or a control character`, what, path)
	}
	return nil
}
