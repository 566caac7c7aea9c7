package fromhost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const rpmProgram = "/usr/bin/rpm"

// rpmFormat makes rpm print one line per fact. Names of files come last in
// their lines, since they may hold anything but a line break.
const rpmFormat = `P\t%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{ARCH}\n` +
	`[r\t%{REQUIRENAME}\n][m\t%{RECOMMENDNAME}\n][p\t%{PROVIDENAME}\n]` +
	`[f\t%{FILEFLAGS:fflags}\t%{FILEDIGESTS}\t%{FILENAMES}\n]`

// maxRPMOutput bounds what rpm may print: a host with 3,000 packages prints
// about 60 MiB.
const maxRPMOutput = 512 << 20

// QueryRPM asks the host's rpm. Its database has several formats, of which
// only rpm's own library reads all.
func QueryRPM(ctx context.Context, format string) ([]byte, error) {
	const op = "fromhost.rpm"
	cmd := exec.CommandContext(ctx, rpmProgram, "-qa", "--qf", format)
	// A clean environment: no macros of a home directory, no translations.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}
	cmd.Dir = "/"
	out := &capped{limit: maxRPMOutput}
	var complaint capped
	complaint.limit = 4096
	cmd.Stdout, cmd.Stderr = out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, sbxerr.New(sbxerr.FromHost, op, "run %q: %w: %.400q", rpmProgram, err, complaint.buf.String())
	}
	return out.buf.Bytes(), nil
}

// capped is a buffer that refuses more than limit bytes.
type capped struct {
	buf   bytes.Buffer
	limit int
}

func (c *capped) Write(p []byte) (int, error) {
	if len(p) > c.limit-c.buf.Len() {
		return 0, errTooBig
	}
	return c.buf.Write(p)
}

// hasRPM reports whether the host is one that rpm manages.
func hasRPM(t *tree) bool {
	r, err := t.resolve(rpmProgram)
	if err != nil || !r.info.isRegular() {
		return false
	}
	for _, dir := range []string{"/usr/lib/sysimage/rpm", "/var/lib/rpm"} {
		if names, err := t.names(dir, maxNames); err == nil && len(names) > 0 {
			return true
		}
	}
	return false
}

// rpm is the database of a host of the Red Hat or SUSE family.
type rpm struct {
	query  RPMQuery
	listed map[*Package][]string
	owners map[string]string
}

func (r *rpm) load(ctx context.Context) ([]*Package, error) {
	out, err := r.query(ctx, rpmFormat)
	if err != nil {
		return nil, err
	}
	all, files, err := parseRPM(out)
	if err != nil {
		return nil, fmt.Errorf("read the output of rpm: %w", err)
	}
	r.listed, r.owners = files, ownersOf(all, files)
	provideFiles(all, r.owners)
	return all, nil
}

func (r *rpm) files(p *Package, _ []*Package) ([]packageFile, error) {
	var all []packageFile
	for _, name := range r.listed[p] {
		all = append(all, packageFile{path: name, source: name})
	}
	return all, nil
}

func (r *rpm) owner(paths ...string) (string, bool) {
	for _, p := range paths {
		if name, ok := r.owners[p]; ok {
			return name, true
		}
	}
	return "", false
}

// parseRPM reads what rpmFormat prints.
func parseRPM(out []byte) ([]*Package, map[*Package][]string, error) {
	var all []*Package
	files := map[*Package][]string{}
	var p *Package
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, maxStanza)
	for line := 1; s.Scan(); line++ {
		kind, rest, _ := strings.Cut(trimNone(s.Text()), "\t")
		if kind == "P" {
			p = rpmPackage(rest)
			all = append(all, p)
		}
		if p == nil && kind != "" {
			return nil, nil, fmt.Errorf("line %d: malformed package %.80q", line, s.Text())
		}
		switch kind {
		case "P", "":
		case "r":
			p.depends = appendRPM(p.depends, rest)
		case "m":
			p.recommends = appendRPM(p.recommends, rest)
		case "p":
			p.provides = append(p.provides, relation{name: rest})
		case "f":
			if name := rpmFile(p, rest); name != "" {
				files[p] = append(files[p], name)
			}
		default:
			return nil, nil, fmt.Errorf("line %d: unknown fact %.80q", line, s.Text())
		}
	}
	if err := s.Err(); err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, errors.New("it names no package")
	}
	return all, files, nil
}

// trimNone removes what rpm of some versions prints, without a line break, for
// each list that a package does not have.
func trimNone(line string) string {
	for strings.HasPrefix(line, "(none)") {
		line = strings.TrimPrefix(line, "(none)")
	}
	return line
}

// rpmPackage returns nil for what is no package.
func rpmPackage(line string) *Package {
	words := strings.Split(line, "\t")
	if len(words) != 3 || !packageName.MatchString(words[0]) {
		return nil
	}
	return &Package{
		Name: words[0], Version: strings.TrimPrefix(words[1], "0:"), Arch: words[2],
		config: map[string]string{},
	}
}

// appendRPM adds a requirement. Those on features of rpm itself are met by the
// host; of the boolean ones (rpm-dependencies), "or" gives alternatives and
// "if" is taken as if it did not hold, since its condition is not part of it.
func appendRPM(groups []anyOf, name string) []anyOf {
	switch {
	case strings.HasPrefix(name, "rpmlib("), strings.HasPrefix(name, "config("), name == "":
		return groups
	case !strings.HasPrefix(name, "("):
		return append(groups, anyOf{{name: name}})
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(name, "("), ")")
	if strings.Contains(inner, " if ") || strings.Contains(inner, " unless ") {
		return groups
	}
	for part := range strings.SplitSeq(inner, " and ") {
		var alternatives anyOf
		for a := range strings.SplitSeq(part, " or ") {
			words := strings.Fields(a)
			if len(words) > 0 {
				alternatives = append(alternatives, relation{name: unbracket(words[0])})
			}
		}
		groups = append(groups, alternatives)
	}
	return groups
}

// unbracket removes the brackets of a group from the name at its edge, but not
// those of a name such as libz.so.1()(64bit).
func unbracket(name string) string {
	name = strings.TrimLeft(name, "(")
	for strings.Count(name, ")") > strings.Count(name, "(") && strings.HasSuffix(name, ")") {
		name = strings.TrimSuffix(name, ")")
	}
	return name
}

// rpmFile returns the name of a file, unless it is one that the package only
// owns (ghost) or documentation, and notes the digest of configuration.
func rpmFile(p *Package, line string) string {
	words := strings.SplitN(line, "\t", 3)
	if len(words) != 3 || !path.IsAbs(words[2]) {
		return ""
	}
	flags, digest, name := words[0], words[1], path.Clean(words[2])
	if strings.ContainsAny(flags, "gd") {
		return ""
	}
	if strings.Contains(flags, "c") && digest != "" {
		p.config[name] = digest
	}
	return name
}

func ownersOf(all []*Package, files map[*Package][]string) map[string]string {
	owners := map[string]string{}
	for _, p := range all {
		for _, f := range files[p] {
			if _, ok := owners[f]; !ok {
				owners[f] = p.Name
			}
		}
	}
	return owners
}

// provideFiles lets packages provide the files that others require by path,
// such as /bin/sh.
func provideFiles(all []*Package, owners map[string]string) {
	required := map[string]bool{}
	for _, p := range all {
		for _, group := range slices.Concat(p.depends, p.recommends) {
			for _, r := range group {
				if path.IsAbs(r.name) {
					required[r.name] = true
				}
			}
		}
	}
	providers := map[string][]string{} // package: required names
	for name := range required {
		for _, alias := range append(aliases(name), "/usr"+name) {
			if owner, ok := owners[alias]; ok {
				providers[owner] = append(providers[owner], name)
				break
			}
		}
	}
	for _, p := range all {
		slices.Sort(providers[p.Name])
		for _, name := range providers[p.Name] {
			p.provides = append(p.provides, relation{name: name})
		}
	}
}
