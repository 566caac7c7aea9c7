package fromhost

import (
	"path"
	"slices"
	"strings"
)

const rpmProgram = "/usr/bin/rpm"

// rpmFormat makes rpm print the lines of parsePackages. Names of files come last
// in theirs, since they may hold anything but a line break.
const rpmFormat = `P\t%{NAME}\t%{ARCH}\tok installed\n` +
	`[r\t%{REQUIRENAME}\n][m\t%{RECOMMENDNAME}\n][p\t%{PROVIDENAME}\n]` +
	`[f\t%{FILEFLAGS:fflags}\t%{FILEDIGESTS}\t%{FILENAMES}\n]`

// rpm is the database of a host of the Red Hat or SUSE family.
type rpm struct {
	owners map[string]*pkg // by file
}

func openRPM(h *host) (database, *index, error) {
	out, err := output(h.real(rpmProgram), "-qa", "--qf", rpmFormat)
	if err != nil {
		return nil, nil, err
	}
	x, err := parsePackages(out)
	if err != nil {
		return nil, nil, err
	}
	r := &rpm{owners: map[string]*pkg{}}
	for _, all := range x.byName {
		for _, p := range all {
			for _, f := range p.files {
				if other := r.owners[f.path]; other == nil || byName(p, other) < 0 {
					r.owners[f.path] = p
				}
			}
		}
	}
	r.provideFiles(x)
	return r, x, nil
}

// provideFiles lets packages provide the files that others require by path,
// such as /bin/sh.
func (r *rpm) provideFiles(x *index) {
	for _, all := range x.byName {
		for _, p := range all {
			for _, alternatives := range slices.Concat(p.depends, p.recommends) {
				for _, name := range alternatives {
					if !path.IsAbs(name) || x.providers[name] != nil {
						continue
					}
					for _, alias := range append(aliases(name), "/usr"+name) {
						if owner := r.owners[alias]; owner != nil {
							x.providers[name] = []*pkg{owner}
							break
						}
					}
				}
			}
		}
	}
}

func (r *rpm) files(p *pkg, _ func(string) bool) ([]packageFile, error) { return p.files, nil }

func (r *rpm) owner(paths ...string) string {
	for _, p := range paths {
		if o := r.owners[p]; o != nil {
			return o.name
		}
	}
	return ""
}

// rpmFile reads the flags, the digest and the name of a file. It leaves out
// files that the package only owns (ghost) and documentation.
func (p *pkg) rpmFile(fact string) bool {
	words := strings.SplitN(fact, "\t", 3)
	if len(words) != 3 || !path.IsAbs(words[2]) {
		return false
	}
	if name := path.Clean(words[2]); !strings.ContainsAny(words[0], "gd") {
		p.files = append(p.files, packageFile{
			path: name, source: name, digest: words[1], config: strings.Contains(words[0], "c") && words[1] != "",
		})
	}
	return true
}

// fromRPM writes a requirement of rpm as dpkg would. Those on features of rpm
// itself are met by the host. Of boolean ones (rpm-dependencies), "if" is taken
// as if it did not hold, since its condition is not part of it.
func fromRPM(s string) string {
	switch {
	case strings.HasPrefix(s, "rpmlib("), strings.HasPrefix(s, "config("):
		return ""
	case !strings.HasPrefix(s, "("):
		return s
	case strings.Contains(s, " if "), strings.Contains(s, " unless "):
		return ""
	}
	s = strings.TrimSuffix(s[1:], ")")
	s = strings.NewReplacer(" or ", "|", " and ", ",", " with ", ",").Replace(s)
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimLeft(part, "(")
		for strings.HasSuffix(part, ")") && strings.Count(part, ")") > strings.Count(part, "(") {
			part = strings.TrimSuffix(part, ")")
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}
