package fromhost

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// The files of dpkg, which everybody may read (dpkg(1), FILES).
const (
	dpkgQuery = "/usr/bin/dpkg-query"
	dpkgDir   = "/var/lib/dpkg"
)

// dpkgFormat makes dpkg-query print the lines of parsePackages, and the
// configuration files: lines of "/path digest" that begin with a blank.
const dpkgFormat = `P\t${Package}\t${Architecture}\t${db:Status-Eflag} ${db:Status-Status}\n` +
	`r\t${Pre-Depends}\nr\t${Depends}\nm\t${Recommends}\np\t${Provides}\n${Conffiles}\n`

// dpkg is the database of a Debian-like host.
type dpkg struct {
	host      *host
	diversion map[string]diversion
}

// diversion says that a file of all packages but one goes elsewhere.
type diversion struct {
	to string
	by string // the package whose file keeps the place; ":" for the administrator
}

func openDpkg(h *host) (database, *index, error) {
	d := &dpkg{host: h, diversion: map[string]diversion{}}
	out, err := d.query("-W", "-f", dpkgFormat)
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(h.real(dpkgDir + "/diversions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for group := range slices.Chunk(strings.Split(string(data), "\n"), 3) { // place, where to, and by which package
		if len(group) == 3 && path.IsAbs(group[1]) {
			d.diversion[group[0]] = diversion{to: group[1], by: group[2]}
		}
	}
	x, err := parsePackages(out)
	return d, x, err
}

func (d *dpkg) query(args ...string) (string, error) {
	return output(d.host.real(dpkgQuery), append([]string{"--admindir=" + d.host.real(dpkgDir)}, args...)...)
}

// conffile reads a line of the field Conffiles: "/path digest [obsolete]".
func (p *pkg) conffile(line string) bool {
	words := strings.Fields(line)
	if len(words) < 2 || line[0] != ' ' || words[0][0] != '/' {
		return false
	}
	p.config[words[0]] = words[1]
	return true
}

func (d *dpkg) files(p *pkg, chosen func(string) bool) ([]packageFile, error) {
	list, err := d.info(p, ".list")
	if err != nil {
		return nil, err
	}
	sums, err := d.info(p, ".md5sums")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	digests := map[string]string{}
	for line := range strings.Lines(string(sums)) { // "digest  usr/bin/x"
		if digest, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  "); ok {
			digests["/"+name] = digest
		}
	}
	var files []packageFile
	for line := range bytes.Lines(list) {
		name := strings.TrimSuffix(string(line), "\n")
		if !path.IsAbs(name) || name == "/." {
			continue
		}
		f := d.locate(path.Clean(name), p, chosen)
		if f.digest, f.config = p.config[name]; !f.config {
			f.digest = digests[name]
		}
		files = append(files, f)
	}
	return files, nil
}

// locate says where a file of p is. A diverted one has its own name again in
// the image when what diverted it is not copied.
func (d *dpkg) locate(name string, p *pkg, chosen func(string) bool) packageFile {
	v, diverted := d.diversion[name]
	switch {
	case !diverted || v.by == p.name:
		return packageFile{path: name, source: name}
	case chosen(v.by):
		return packageFile{path: v.to, source: v.to}
	}
	return packageFile{path: name, source: v.to}
}

func (d *dpkg) info(p *pkg, suffix string) ([]byte, error) {
	file := d.host.real(dpkgDir + "/info/" + p.name)
	data, err := os.ReadFile(file + ":" + p.arch + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(file + suffix)
	}
	return data, err
}

func (d *dpkg) owner(paths ...string) string {
	out, _ := d.query(append([]string{"-S", "--"}, paths...)...) // it fails if one of paths has no owner
	for line := range strings.Lines(out) {
		owners, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if ok && slices.Contains(paths, name) { // paths were read as patterns
			owner, _, _ := strings.Cut(owners, ", ")
			return owner
		}
	}
	return ""
}
