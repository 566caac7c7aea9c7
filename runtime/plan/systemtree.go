package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/layerfs"
)

// systemTrees hold files of the image. A mount may lie in them.
var systemTrees = strings.Fields("/etc /run /usr")

func inSystem(name string) bool {
	return slices.ContainsFunc(systemTrees, func(tree string) bool { return below(name, tree) })
}

// In an image /var/run is a link to /run (hier(7)).
const (
	varRun = "/var/run"
	run    = "/run"
)

// withoutLink is target where that link leads.
func withoutLink(target string) string {
	if below(target, varRun) {
		return run + strings.TrimPrefix(target, varRun)
	}
	return target
}

// checkSystemPoints refuses a mount in the image's own trees behind a link of the image. The mount
// point would take the link's place, and hide what it leads to from all programs.
func (p *Sandbox) checkSystemPoints(image layerfs.Layers) (err error) {
	for _, m := range p.Mounts {
		if inSystem(m.Target) && !below(m.Target, run) && !m.Nested {
			err = errors.Join(err, checkLinks(image, m.Target))
		}
	}
	for _, m := range p.MountRequests {
		if !below(m.Target, varRun) {
			continue
		}
		if st, e := image.Lstat(varRun[1:]); e != nil || st.Mode().Type() != fs.ModeSymlink {
			err = errors.Join(err, refuseTarget(m.Target, "the image has no link %s to %s: name %s", varRun, run, withoutLink(m.Target)))
		}
	}
	return err
}

func checkLinks(image layerfs.Layers, target string) error {
	for name := target; name != "/"; name = path.Dir(name) {
		st, err := image.Lstat(name[1:])
		switch {
		case errors.Is(err, fs.ErrNotExist): // or it is behind a link
		case err != nil:
			return sbxerr.Wrap(sbxerr.ImageContent, "runtime.plan", err)
		case st.Mode().Type() == fs.ModeSymlink:
			return refuseTarget(target, "the image's %s is a symbolic link: name what it leads to", name)
		}
	}
	return nil
}

func refuseTarget(target, format string, args ...any) error {
	return sbxerr.WithRemedy(sbxerr.Workspace, "runtime.plan", fmt.Errorf("mount target %q: "+format, slices.Insert(args, 0, any(sbxerr.Clip(target)))...), otherTarget)
}

const otherTarget = "name another path inside, such as /workspace or that of the directory on the host"
