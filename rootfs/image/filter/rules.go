package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Sizes of names: PATH_MAX less the final NUL, and NAME_MAX (limits.h).
const (
	maxComponent = 255

	// maxDepth is ours: what a name costs grows with it.
	maxDepth = 255
)

// rule looks at one entry. It refuses it with an error, leaves it out by
// setting its strip field, or counts what will not be written.
type rule struct {
	name  string
	why   string
	check func(*Filter, *entry) error
}

// formRules see nothing but the entry. All of them run, so that a refusal
// names every reason.
var formRules = []rule{
	{"name-text", "a NUL ends a name for the kernel but not for a check", checkText},
	{"name-length", "the kernel takes no longer names, and deep ones cost time", checkLength},
	{"name-relative", "an absolute name leaves the image when an unpacker joins it wrongly", checkRelative},
	{"name-clean", `".." climbs out ("zip slip"); "." and empty components are second spellings of a name`, checkClean},
	{"whiteout-form", "a malformed whiteout hides a parent directory, or is taken for a plain file by one reader only", checkWhiteoutForm},
	{"type", "an unknown type is a file for some readers and skipped by others", checkType},
	{"owner", "ids outside of the sandbox's block do not map and would belong to nobody", checkOwner},
	{"symlink-target", "a target that the kernel refuses breaks the unpacking; where it points to is resolved inside the sandbox only", checkSymlink},
	{"special-dirs", "a runtime that follows /dev, /proc or /sys of an image writes to the host (CVE-2023-28642, CVE-2025-31133, CVE-2025-52565, CVE-2026-41579)", checkSpecial},
	{"mount-points", "the sandbox mounts a directory there; a symlink would send the mount elsewhere", checkMountPoint},
	{"devices", "a device node in an image opens a device of the host (CVE-2026-96812); overlayfs takes 0:0 for a whiteout", checkDevice},
	{"set-id", "nothing in a sandbox gains rights by running a file", checkSetID},
	{"xattrs", "security.capability is a set-id bit, trusted.overlay.* rewrites the overlay, and no image needs another", checkXattrs},
}

// treeRules see the entry and what the image holds so far. They run only when
// the entry's form is sound.
var treeRules = []rule{
	{"parents", "writing through a symlink leaves the directory that the name says (CVE-2025-47290)", checkParents},
	{"duplicates", "unpackers disagree whether the first or the last one counts", checkDuplicate},
	{"hardlink-target", "a link to what is not a file of this layer reaches a file of the host or of another image, or changes its mode (CVE-2021-32760)", checkHardlink},
	{"whiteouts", "a layer that removes what it adds means different things to different unpackers", checkWhiteout},
	{"opaque-root", "overlayfs merges the roots of all layers, so what such a whiteout hides would be there", checkOpaqueRoot},
}

func checkText(_ *Filter, e *entry) error {
	for _, p := range append(e.paths(), e.link) {
		if strings.ContainsRune(p, 0) {
			return fmt.Errorf("%s holds a NUL", flow.Quote(p))
		}
	}
	return nil
}

func checkLength(_ *Filter, e *entry) error {
	for _, p := range e.paths() {
		if len(p) > maxPath {
			return fmt.Errorf("%s has %d bytes: at most %d", flow.Quote(p), len(p), maxPath)
		}
		if depth := strings.Count(p, "/") + 1; depth > maxDepth {
			return fmt.Errorf("%s has %d components: at most %d", flow.Quote(p), depth, maxDepth)
		}
		for c := range strings.SplitSeq(p, "/") {
			if len(c) > maxComponent {
				return fmt.Errorf("%s, a component of the name, has %d bytes: at most %d", flow.Quote(c), len(c), maxComponent)
			}
		}
	}
	return nil
}

func checkRelative(_ *Filter, e *entry) error {
	for _, p := range e.paths() {
		if strings.HasPrefix(p, "/") {
			return fmt.Errorf("%s is absolute: names must be relative to the image's root", flow.Quote(p))
		}
	}
	return nil
}

func checkClean(_ *Filter, e *entry) error {
	for _, p := range e.paths() {
		p = strings.TrimPrefix(p, "/") // name-relative has its own message
		if p == "" && e.kind == kindDir {
			continue
		}
		for c := range strings.SplitSeq(p, "/") {
			if c == "" || c == "." || c == ".." {
				return fmt.Errorf("%s has the component %q", flow.Quote(p), c)
			}
		}
	}
	return nil
}

func checkWhiteoutForm(_ *Filter, e *entry) error {
	parts := strings.Split(e.path, "/")
	last := len(parts) - 1
	for i, c := range parts {
		hidden, marked := strings.CutPrefix(c, whiteoutPrefix)
		switch {
		case !marked:
		case i != last:
			return fmt.Errorf("%s is inside a whiteout", flow.Quote(e.path))
		case e.kind != kindWhiteout && e.kind != kindOpaque:
			return fmt.Errorf("%s is %s with the name of a whiteout", flow.Quote(e.path), e.kind)
		case e.size != 0:
			return fmt.Errorf("the whiteout %s has content", flow.Quote(e.path))
		case e.kind == kindOpaque:
		case slices.Contains([]string{"", ".", ".."}, hidden) || strings.HasPrefix(hidden, whiteoutPrefix):
			return fmt.Errorf("the whiteout %s names nothing that can be hidden", flow.Quote(e.path))
		}
	}
	return nil
}

func checkType(_ *Filter, e *entry) error {
	if e.kind == kindUnknown {
		return fmt.Errorf("type %q is unknown", e.flag)
	}
	return nil
}

func checkOwner(_ *Filter, e *entry) error {
	if e.uid < 0 || e.uid > maxID || e.gid < 0 || e.gid > maxID {
		return fmt.Errorf("owner %d:%d is out of range: ids are 0 to %d", e.uid, e.gid, maxID)
	}
	return nil
}

func checkSymlink(_ *Filter, e *entry) error {
	if e.kind != kindSymlink {
		return nil
	}
	if e.link == "" || len(e.link) > maxPath {
		return fmt.Errorf("the symlink's target has %d bytes: 1 to %d", len(e.link), maxPath)
	}
	return nil
}

var specialDirs = []string{"dev", "proc", "sys"}

func checkSpecial(_ *Filter, e *entry) error {
	first, _, inside := strings.Cut(e.path, "/")
	if !slices.Contains(specialDirs, first) {
		return nil
	}
	if inside {
		e.strip = image.StripSpecial
		return nil
	}
	if e.kind != kindDir {
		return fmt.Errorf("/%s is %s: it must be a directory or absent", first, e.kind)
	}
	return nil
}

// mountPoints are made by the layer that every sandbox has on top, with their
// parents. dev and proc are special-dirs already.
var mountPoints = []string{"etc", "home", "run", "tmp", "var", "var/tmp", "workspace"}

func checkMountPoint(_ *Filter, e *entry) error {
	if slices.Contains(mountPoints, e.path) && e.kind != kindDir {
		return fmt.Errorf("/%s is %s: the sandbox needs a directory there", e.path, e.kind)
	}
	return nil
}

func checkDevice(_ *Filter, e *entry) error {
	switch {
	case e.strip != "":
	case e.kind == kindDevice:
		e.strip = image.StripDevice
	case e.kind == kindFIFO:
		e.strip = image.StripFIFO
	}
	return nil
}

// checkSetID counts; entry.meta does not let these bits through. The header of
// a hard link or a symlink has no mode of its own.
func checkSetID(f *Filter, e *entry) error {
	if e.strip != "" || (e.kind != kindFile && e.kind != kindDir) {
		return nil
	}
	if e.mode&modeSetuid != 0 {
		f.stripped(image.StripSetuid)
	}
	if e.mode&modeSetgid != 0 {
		f.stripped(image.StripSetgid)
	}
	if e.mode&modeSticky != 0 && e.kind != kindDir {
		f.stripped(image.StripSticky)
	}
	return nil
}

// checkXattrs counts; an entry has no field that lets a value through.
func checkXattrs(f *Filter, e *entry) error {
	if e.strip != "" {
		return nil
	}
	for _, name := range e.xattrs {
		if name == "security.capability" {
			f.stripped(image.StripCapability)
		} else {
			f.stripped(image.StripXattr)
		}
	}
	return nil
}

func checkParents(f *Filter, e *entry) error {
	n := f.tree.root
	for _, c := range e.parents() {
		if n = f.tree.child(n, c); n == nil {
			return nil // the rest is made
		}
		if n.kind != kindDir {
			return fmt.Errorf("its parent %q is %s: it must be a directory", c, n.kind)
		}
	}
	return nil
}

func checkDuplicate(f *Filter, e *entry) error {
	n := f.tree.lookup(e.name)
	switch {
	case n == nil || n.layer != f.tree.layer || e.kind == kindOpaque:
		return nil
	case n.kind == kindDir && e.kind == kindDir:
		return nil // the later one sets the directory's attributes; it replaces nothing
	case n.kind == kindWhiteout && e.kind == kindWhiteout, n.kind != kindWhiteout && e.kind != kindWhiteout:
		return fmt.Errorf("the layer holds it twice, first as %s, then as %s", n.kind, e.kind)
	}
	return nil // checkWhiteout has its own message
}

func checkHardlink(f *Filter, e *entry) error {
	if e.kind != kindHardlink {
		return nil
	}
	n := f.tree.lookup(e.link)
	switch {
	case n == nil:
		return fmt.Errorf("its target %s is not in the image", flow.Quote(e.link))
	case n.kind != kindFile:
		return fmt.Errorf("its target %s is %s: it must be a file", flow.Quote(e.link), n.kind)
	case n.layer != f.tree.layer:
		return fmt.Errorf("its target %s is in another layer", flow.Quote(e.link))
	}
	return nil
}

func checkWhiteout(f *Filter, e *entry) error {
	n := f.tree.lookup(e.name)
	now := n != nil && n.layer == f.tree.layer
	switch e.kind {
	case kindWhiteout:
		if n == nil {
			e.strip = image.StripWhiteout
		} else if now && n.kind != kindWhiteout {
			return errors.New("the layer both adds and removes it")
		}
	case kindOpaque:
		if !f.tree.hides(n) {
			e.strip = image.StripWhiteout
		} else if f.tree.removes(n) {
			return errors.New("the layer has removed something in it before: overlayfs shows such a whiteout as a device")
		}
	default:
		if now && n.kind == kindWhiteout {
			return errors.New("the layer both removes and adds it")
		}
	}
	return nil
}

// checkOpaqueRoot was found by comparing mounts with what the layers mean: the
// attribute trusted.overlay.opaque does nothing on the root of a layer.
func checkOpaqueRoot(_ *Filter, e *entry) error {
	if e.kind == kindOpaque && e.name == "" && e.strip == "" {
		return errors.New("a layer cannot hide all of the lower ones: remove the directories by name")
	}
	return nil
}
