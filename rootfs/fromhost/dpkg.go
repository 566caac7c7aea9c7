package fromhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The files of dpkg, which everybody may read (dpkg(1), FILES).
const (
	dpkgDir        = "/var/lib/dpkg"
	dpkgStatus     = dpkgDir + "/status"
	dpkgDiversions = dpkgDir + "/diversions"
	dpkgInfo       = dpkgDir + "/info"

	maxStatus = 256 << 20
	maxList   = 64 << 20
)

// dpkg reads the database of a Debian-like host without any of its programs.
type dpkg struct {
	tree      *tree
	broken    []string
	diversion map[string]diversion
	lists     []fileList // what owner has read; nil before
}

// fileList is the content of one list, with a line break at either end.
type fileList struct {
	pkg  string
	data []byte
}

// diversion says that a file of all packages but one goes elsewhere.
type diversion struct {
	to string
	by string // the package whose file keeps the place; ":" for the administrator
}

// openDpkg returns nil where there is no dpkg.
func openDpkg(t *tree) (*dpkg, error) {
	const op = "fromhost.dpkg"
	if _, err := t.resolve(dpkgStatus); err != nil {
		if errors.Is(err, errAbsent) {
			return nil, nil
		}
		return nil, sbxerr.Wrap(sbxerr.FromHost, op, fmt.Errorf("read %q: %w", dpkgStatus, err))
	}
	data, err := t.readFile(dpkgDiversions, maxList)
	if err != nil && !errors.Is(err, errAbsent) {
		return nil, sbxerr.Wrap(sbxerr.FromHost, op, fmt.Errorf("read %q: %w", dpkgDiversions, err))
	}
	return &dpkg{tree: t, diversion: parseDiversions(data)}, nil
}

func (d *dpkg) load(context.Context) ([]*Package, error) {
	data, err := d.tree.readFile(dpkgStatus, maxStatus)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", dpkgStatus, err)
	}
	all, broken, err := parseStatus(data)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", dpkgStatus, err)
	}
	d.broken = broken
	return all, nil
}

// parseDiversions reads groups of three lines: place, where it was diverted
// to, and the package that did it.
func parseDiversions(data []byte) map[string]diversion {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	all := map[string]diversion{}
	for group := range slices.Chunk(lines, 3) {
		if len(group) == 3 && path.IsAbs(group[0]) && path.IsAbs(group[1]) {
			all[group[0]] = diversion{to: path.Clean(group[1]), by: group[2]}
		}
	}
	return all
}

func (d *dpkg) files(p *Package, chosen []*Package) ([]packageFile, error) {
	data, err := d.list(p)
	if err != nil {
		return nil, fmt.Errorf("read the file list of %s: %w", p.Name, err)
	}
	var files []packageFile
	for _, name := range parseList(data) {
		files = append(files, d.locate(name, p, chosen))
	}
	return files, nil
}

// locate says where a file of p is. A diverted one has its own name again in
// the image when what diverted it is not copied.
func (d *dpkg) locate(name string, p *Package, chosen []*Package) packageFile {
	v, diverted := d.diversion[name]
	if !diverted || v.by == p.Name {
		return packageFile{path: name, source: name}
	}
	if slices.ContainsFunc(chosen, func(c *Package) bool { return c.Name == v.by }) {
		return packageFile{path: v.to, source: v.to}
	}
	return packageFile{path: name, source: v.to}
}

func (d *dpkg) list(p *Package) ([]byte, error) {
	data, err := d.tree.readFile(path.Join(dpkgInfo, p.Name+":"+p.Arch+".list"), maxList)
	if errors.Is(err, errAbsent) {
		data, err = d.tree.readFile(path.Join(dpkgInfo, p.Name+".list"), maxList)
	}
	return data, err
}

// parseList reads one path per line.
func parseList(data []byte) []string {
	var names []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if path.IsAbs(line) && line != "/." {
			names = append(names, path.Clean(line))
		}
	}
	return names
}

func (d *dpkg) owner(paths ...string) (string, bool) {
	if d.lists == nil {
		d.readLists()
	}
	for _, p := range paths {
		line := []byte("\n" + p + "\n")
		for _, l := range d.lists {
			if bytes.Contains(l.data, line) {
				return l.pkg, true
			}
		}
	}
	return "", false
}

// readLists reads all lists. One that cannot be read owns nothing.
func (d *dpkg) readLists() {
	d.lists = []fileList{}
	names, err := d.tree.names(dpkgInfo, maxNames)
	if err != nil {
		return
	}
	for _, n := range names {
		pkg, ok := strings.CutSuffix(n, ".list")
		if !ok {
			continue
		}
		if data, err := d.tree.readFile(path.Join(dpkgInfo, n), maxList); err == nil {
			d.lists = append(d.lists, fileList{pkg, slices.Concat([]byte("\n"), data, []byte("\n"))})
		}
	}
}
