package layertar

import (
	"archive/tar"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Copy says which files of one tree are put where in another one.
type Copy struct {
	From    *os.Root
	Sources []string // names or patterns (path.Match); a leading slash is the tree's own
	Files   []File   // files of the tree by other names, after those of Sources
	Texts   []Text   // files whose content is given, after those of Files
	Into    *os.Root // the image so far
	Dest    string   // absolute; with a slash at the end it is a directory
	Owner   *Owner   // of all that is copied; nil: as the files have it, and root for directories that are made
	DirMode int64    // of directories that are made and no source has; 0: 0755
	// Mode gives the mode of all that is copied by that of its source. Nil: it stays.
	Mode func(fs.FileMode) fs.FileMode
	// Unpack puts the content of archives into Dest, instead of the archives.
	Unpack bool
	Limits Limits
}

// File is a file of a tree, and the name that it is copied by.
type File struct{ At, Name string }

// Text is a file.
type Text struct{ Name, Content string }

// source is one file or directory that is copied.
type source struct {
	name string // as it was asked for
	at   string // where it is in the tree, behind all links
	node node
}

// Plan finds the files. It reads no content but that of archives.
func (c Copy) Plan(ctx context.Context) (Layer, error) {
	p := planner{Copy: c, target: newTarget(c.Into), ended: ctx.Err}
	if err := p.plan(); err != nil {
		return Layer{}, err
	}
	return p.target.layer()
}

type planner struct {
	Copy
	target *target
	ended  func() error // the call that wants the plan
}

func (p *planner) plan() error {
	sources, err := p.find()
	if err != nil {
		return err
	}
	if err := p.checkMany(sources); err != nil {
		return err
	}
	for _, s := range sources {
		archive := false
		if p.Unpack && s.node.mode.IsRegular() {
			if archive, err = p.unpack(s.at); err != nil {
				return fmt.Errorf("archive %q: %w", s.name, err)
			}
		}
		if archive {
			continue
		}
		if err := p.copy(s); err != nil {
			return err
		}
	}
	for _, text := range p.Texts {
		if err := p.text(text); err != nil {
			return err
		}
	}
	return nil
}

// checkMany refuses several files for one name.
func (p *planner) checkMany(sources []source) error {
	if strings.HasSuffix(p.Dest, "/") || len(sources)+len(p.Texts) < 2 {
		return nil
	}
	_, n, err := follow(p.target.lookup, p.Dest)
	if err != nil || n.isDir() {
		return err
	}
	files := len(p.Texts)
	for _, s := range sources {
		if !s.node.isDir() {
			files++
		}
	}
	if files == 0 {
		return nil
	}
	return refuse("%d sources need a directory: end %q with a slash", len(sources)+len(p.Texts), p.Dest)
}

// find returns what the sources mean. A pattern may mean nothing.
func (p *planner) find() ([]source, error) {
	var found []source
	for _, name := range p.Sources {
		names := []string{name}
		if isPattern(name) {
			var err error
			if names, err = p.match(name); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			at, n, err := follow(lookupIn(p.From), path.Clean("/"+name)) // a name above the tree is one in it
			if err != nil {
				return nil, fmt.Errorf("source: %w", err)
			}
			if n.absent {
				return nil, sbxerr.WithRemedy(sbxerr.Config, "layertar.copy", fmt.Errorf("there is no %q", name), "look at the context's files and at its .dockerignore")
			}
			found = append(found, source{name, at, n})
		}
	}
	for _, f := range p.Files {
		n, err := lookupIn(p.From)(f.At)
		if err != nil {
			return nil, err
		}
		found = append(found, source{f.Name, f.At, n})
	}
	return found, nil
}

func isPattern(name string) bool {
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '*', '?', '[':
			return true
		case '\\':
			i++
		}
	}
	return false
}

// match returns the names that a pattern means. Links in it lead no further.
func (p *planner) match(pattern string) ([]string, error) {
	parts := strings.Split(path.Clean("/" + pattern)[1:], "/")
	fixed := 0
	for !isPattern(parts[fixed]) {
		fixed++
	}
	dir, n, err := follow(lookupIn(p.From), path.Join(parts[:fixed]...))
	if err != nil {
		return nil, err
	}
	rest := path.Join(parts[fixed:]...)
	if _, err := path.Match(rest, ""); err != nil {
		return nil, refuse("pattern %q: %w", pattern, err)
	}
	if !n.isDir() {
		return nil, refuse("there is no directory for the pattern %q", pattern)
	}
	var names []string
	depth := len(parts) - fixed
	err = Walk(p.From, dir, func(name string, entry fs.DirEntry) error {
		below := name
		if dir != "." {
			below = name[len(dir)+1:]
		}
		if matches, _ := path.Match(rest, below); matches { // it was checked
			names = append(names, name)
			return skip(entry)
		}
		if strings.Count(below, "/")+1 >= depth {
			return skip(entry)
		}
		return nil
	})
	return names, err
}

func skip(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func (p *planner) dirMode() int64 {
	if p.DirMode == 0 {
		return 0o755
	}
	return p.DirMode
}

func (p *planner) dirOwner() Owner {
	if p.Owner == nil {
		return Owner{}
	}
	return *p.Owner
}

// place makes the directories that the destination lacks. It returns the name that a source
// called base gets, which is no link.
func (p *planner) place(base string, isDir bool) (string, error) {
	made := path.Dir(p.Dest)
	if strings.HasSuffix(p.Dest, "/") {
		made = p.Dest
	}
	if _, err := p.target.makePath(made, p.dirMode(), p.dirOwner()); err != nil {
		return "", err
	}
	to, n, err := follow(p.target.lookup, p.Dest)
	if err != nil {
		return "", err
	}
	need := path.Dir(to)
	switch {
	case !isDir && n.isDir():
		to = path.Join(to, base)
		need = path.Dir(to)
	case isDir && n.absent:
		need = to
	}
	return to, p.target.makeDirs(need, p.dirMode(), p.dirOwner())
}

// copy plans one source.
func (p *planner) copy(s source) error {
	to, err := p.place(path.Base(path.Clean("/"+s.name)), s.node.isDir())
	if err != nil {
		return err
	}
	return p.tree(s.at, to, false)
}

// tree plans a file, or a directory with all that it holds. A directory that is there keeps
// its mode and owner unless replace is set. A link to a directory is taken for one, where
// BuildKit refuses: many images have some, such as /bin.
func (p *planner) tree(from, to string, replace bool) error {
	if err := p.checkSize(); err != nil {
		return err
	}
	info, err := p.From.Lstat(from)
	if err != nil {
		return err
	}
	n, err := p.target.lookup(to)
	if err != nil {
		return err
	}
	h := p.header(to, info)
	if !info.IsDir() {
		if err := mayBeFile(to, n); err != nil {
			return err
		}
		return p.file(from, h, info)
	}
	if n.isLink() { // such as /bin of the image: what it leads to stays as it is
		if to, n, err = follow(p.target.lookup, to); err != nil {
			return err
		}
		if n.absent {
			return refuse("%q of the image is a link that leads nowhere, and the source has a directory of that name", "/"+h.Name)
		}
		replace = false
	}
	if err := mayBeDir(to, n); err != nil {
		return err
	}
	if n.absent || replace {
		p.target.directory(h)
	}
	entries, err := list(p.From, from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := p.tree(path.Join(from, e.Name()), path.Join(to, e.Name()), true); err != nil {
			return err
		}
	}
	return nil
}

// checkSize bounds what a plan takes, however often a source is named.
func (p *planner) checkSize() error {
	if most := p.Limits.Entries; most > 0 && int64(len(p.target.items)) > most {
		return sbxerr.New(sbxerr.ImageTooBig, "layertar.copy", "the instruction copies more than %d files", most)
	}
	return p.ended()
}

// file plans a file or a link.
func (p *planner) file(from string, h tar.Header, info fs.FileInfo) error {
	i, err := itemOf(p.From, from, info)
	if err != nil || i == nil {
		return err
	}
	i.header.Name, i.header.Uid, i.header.Gid = h.Name, h.Uid, h.Gid
	if !i.mode.IsRegular() {
		h.Mode = 0o777
	}
	i.header.Mode = h.Mode
	p.target.put(i)
	return nil
}

func (p *planner) text(text Text) error {
	to, err := p.place(path.Base(path.Clean("/"+text.Name)), false)
	if err != nil {
		return err
	}
	n, err := p.target.lookup(to)
	if err == nil {
		err = mayBeFile(to, n)
	}
	if err != nil {
		return err
	}
	owner := p.dirOwner()
	p.target.put(&item{
		header: tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: p.mode(0o644), Uid: owner.UID, Gid: owner.GID, Size: int64(len(text.Content)), ModTime: time.Now()},
		from:   textFile(text.Content),
	})
	return nil
}

// header describes a file under another name.
func (p *planner) header(name string, info fs.FileInfo) tar.Header {
	st := info.Sys().(*syscall.Stat_t)
	h := tar.Header{Name: name, Mode: p.mode(info.Mode()), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime()}
	if p.Owner != nil {
		h.Uid, h.Gid = p.Owner.UID, p.Owner.GID
	}
	return h
}

// mode returns the mode in a tar header.
func (p *planner) mode(m fs.FileMode) int64 {
	if p.Mode != nil {
		m = p.Mode(m)
	}
	return tarMode(m)
}

// tarMode returns the bits of m as in inode(7).
func tarMode(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	for bit, tar := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			bits |= tar
		}
	}
	return bits
}
