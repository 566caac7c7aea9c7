package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/finding"
)

// A tag is a child without limits. It only tells which processes belong to a command, so
// it costs a command far less than a child with limits:
//
//   - It is in one hierarchy: on v1 and hybrid the freezer's, on v2 threaded and below PID
//     1's leaf, whose memory and tasks then count those of the command as before.
//   - PID 1 starts the command in it. The thread that forks writes "0" to the file of the
//     group, so it moves itself alone, which takes no lock over all processes of the host.
//     It moves back after the fork.
const tagPrefix = "command-"

// canTag reports whether v1 can have tags: a group in the freezer's hierarchy must not be
// one of another controller too.
func (h Host) canTag() bool {
	freezer := h.Hierarchies["freezer"]
	shared := slices.ContainsFunc(childControllers, func(name string) bool { return name != "freezer" && h.Hierarchies[name] == freezer })
	return h.Controllers["freezer"] == finding.Yes && !shared
}

// Tag names the tag with this number, without touching it.
func (g *Group) Tag(n uint32) *Child {
	return &Child{parent: g, own: &Group{host: g.host, path: g.tagPath() + "/" + tagPrefix + strconv.FormatUint(uint64(n), 10)}}
}

// tagPath is where tags are: below the group in which PID 1 lives.
func (g *Group) tagPath() string {
	if g.host.Mode == V2 {
		return g.path + "/" + InitChild
	}
	return g.path
}

// tagDir returns the directory of a tag, or of the group in which PID 1 lives, and the
// file there that takes a thread.
func (g *Group) tagDir() (dir, file string) {
	if g.host.Mode == V2 {
		return g.unified(), "cgroup.threads"
	}
	return g.dir("freezer"), "tasks"
}

// Tags returns the numbers of the tags that there are, sorted.
func (g *Group) Tags() ([]uint32, error) {
	dir, _ := (&Group{host: g.host, path: g.tagPath()}).tagDir()
	if dir == "" {
		return nil, nil
	}
	names, err := subdirs(dir)
	var numbers []uint32
	for _, name := range names {
		text, ok := strings.CutPrefix(name, tagPrefix)
		if n, err := strconv.ParseUint(text, 10, 32); ok && err == nil {
			numbers = append(numbers, uint32(n))
		}
	}
	slices.Sort(numbers)
	return numbers, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.tags", err)
}

// NewTag makes the tag with this number. On v2 the group must have been delegated. On an
// error nothing is left.
func (g *Group) NewTag(n uint32) (*Child, error) {
	const op = "cgroups.tag"
	c := g.Tag(n)
	dir, _ := c.own.tagDir()
	if dir == "" {
		return nil, sbxerr.New(sbxerr.CgroupController, op, "make cgroup %q: the host has no freezer", c.own.path)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Cgroup, op, err)
	}
	if g.host.Mode != V2 {
		return c, nil
	}
	if err := writeFile(dir, "cgroup.type", "threaded"); err != nil {
		_, removed := c.RemoveTag()
		return nil, sbxerr.Wrap(sbxerr.Cgroup, op, errors.Join(fmt.Errorf("make %q threaded: %w", dir, err), removed))
	}
	return c, nil
}

// OpenTag opens the file by which a thread of PID 1 enters the tag. The kernel asks for
// the rights of the process that opened the file, so that PID 1 needs none.
func (c *Child) OpenTag() (*os.File, error) { return c.own.openTag() }

// OpenHome opens the file by which a thread of PID 1 leaves a tag again.
func (g *Group) OpenHome() (*os.File, error) {
	return (&Group{host: g.host, path: g.tagPath()}).openTag()
}

func (g *Group) openTag() (*os.File, error) {
	dir, file := g.tagDir()
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.open_tag", fmt.Errorf("open %s of %q: %w", file, g.path, err))
	}
	return os.NewFile(uintptr(fd), file), nil
}

// TagEmpty reports whether no thread is in the tag.
func (c *Child) TagEmpty() (bool, error) {
	dir, file := c.own.tagDir()
	s, err := readString(dir, file)
	if err != nil && !gone(err) {
		return false, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.tag_empty", err)
	}
	return strings.TrimSpace(s) == "", nil
}
