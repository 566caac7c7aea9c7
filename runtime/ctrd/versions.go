package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Versions is what runs underneath.
type Versions struct {
	Containerd string // as the server says
	Runc       string // as runc --version says
}

// Versions asks the server, and runc where it is another file than when last asked.
func (e *Engine) Versions(ctx context.Context) (Versions, error) {
	var v Versions
	err := e.call(ctx, "ctrd.versions", "read version of", e.cfg.Address, func(ctx context.Context) error {
		r, err := e.client.VersionService().Version(ctx, &emptypb.Empty{})
		v.Containerd = r.GetVersion()
		return err
	})
	runc, runcErr := e.runc.of(e.cfg.Runc, func() (string, error) { return runcVersion(ctx, e.cfg.Runc) })
	v.Runc = runc
	return v, errors.Join(err, runcErr)
}

// Ping asks the server whether it serves, and waits no longer than ctx.
func (e *Engine) Ping(ctx context.Context) error {
	return e.call(ctx, "ctrd.ping", "reach", e.cfg.Address, func(ctx context.Context) error {
		_, err := e.client.VersionService().Version(ctx, &emptypb.Empty{})
		return err
	})
}

func runcVersion(ctx context.Context, path string) (string, error) {
	out, err := versionOutput(ctx, path)
	if err != nil {
		return "", err
	}
	v, ok := parseRuncVersion(out)
	if !ok {
		return "", sbxerr.New(sbxerr.EngineVersion, "ctrd.versions", "parse version of %q: %.100q", path, out)
	}
	return v, nil
}

func versionOutput(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return "", sbxerr.New(sbxerr.Binary, "ctrd.versions", "run %q --version: %w", path, err)
	}
	return string(out), nil
}

// parseRuncVersion takes the version out of "runc version 1.5.2\ncommit: …".
func parseRuncVersion(out string) (string, bool) {
	first, _, _ := strings.Cut(out, "\n")
	v, ok := strings.CutPrefix(first, "runc version ")
	if !ok {
		return "", false
	}
	return strings.TrimSpace(v), true
}

// Severity says what a version's finding means for a run.
type Severity string

// The severities, from good to bad.
const (
	Fine    Severity = "fine"
	Warned  Severity = "warned"  // known weaknesses that our other barriers cover
	Refused Severity = "refused" // no run without the operator's explicit consent
)

// VersionFinding is what is known of a version. The zero value refuses.
type VersionFinding struct {
	Severity Severity
	Reason   string // empty if fine
}

// floor says what is wrong with versions below it. Each release line got its fix
// in a release of its own: a version is compared with the entry of its own line,
// one of a line between two entries or below the first is older than the fix, one
// of a line past the last is newer.
type floor struct {
	severity Severity
	fixed    []string // ascending, at most one for each major.minor
	why      string
}

// containerdFloors and runcFloors are judged in order; the first hit counts. The
// sources are the advisories of the two projects.
var (
	containerdFloors = []floor{
		{Refused, []string{"1.7.0"},
			"older than 1.7, the oldest line whose API is used and that still gets fixes"},
		// Warned only, because caisson hands no label of an image to a container, and
		// images are rewritten before containerd sees them. Other users of the same
		// containerd are exposed.
		{Warned, []string{"1.7.33", "2.0.10", "2.1.9", "2.2.5", "2.3.2"},
			"CVE-2026-53488: a label of an image runs a program as root; CVE-2026-47262: a group file of an image exhausts memory"},
		// What 1.7 and other old lines lack concerns CRI and checkpoints: off in caisson's
		// own containerd, and never asked for by caisson.
		{Warned, []string{"2.3.5", "2.4.2"},
			"older than the security releases of its line, or of a line that gets no fix for the restoring of checkpoints through CRI (CVE-2026-53489, CVE-2026-53492, CVE-2026-50195)"},
	}
	runcFloors = []floor{
		{Refused, []string{"1.3.6", "1.4.3", "1.5.0-rc.3"},
			"CVE-2026-41579: a /dev that is a symbolic link in the image is followed on the host; earlier ones lack further fixes for escapes, such as CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881"},
		// A warning, because caisson never restores a container.
		{Warned, []string{"1.3.7", "1.4.4", "1.5.3"},
			"CVE-2026-119101: runc restore mounts a directory of the host that a hostile image chose"},
	}
)

// CheckContainerd judges a containerd version such as "v2.4.2" or "1.7.35".
func CheckContainerd(version string) VersionFinding { return judge(version, containerdFloors) }

// CheckRunc judges a runc version such as "1.5.2" or "1.3.0-rc.1+dev".
func CheckRunc(version string) VersionFinding { return judge(version, runcFloors) }

func judge(version string, floors []floor) VersionFinding {
	v, err := parseVersion(version)
	if err != nil {
		return VersionFinding{Refused, err.Error()}
	}
	for _, f := range floors {
		if f.below(v) {
			return VersionFinding{f.severity, f.why}
		}
	}
	return VersionFinding{Severity: Fine}
}

// below says whether v lacks the fix.
func (f floor) below(v semver) bool {
	newest := true
	for _, text := range f.fixed {
		fixed, err := parseVersion(text)
		if err != nil {
			return true // a slip in the table must not let anything pass; a test looks for it
		}
		if v.line() == fixed.line() {
			return v.less(fixed)
		}
		newest = newest && fixed.less(v)
	}
	return !newest
}

// semver is a version as these projects number them.
type semver struct {
	major, minor, patch int
	pre                 string // "rc.3"; empty is the release itself
}

func (v semver) line() [2]int { return [2]int{v.major, v.minor} }

// less orders by the rules of semver.org: a pre-release comes before its release.
func (v semver) less(o semver) bool {
	switch {
	case v.major != o.major:
		return v.major < o.major
	case v.minor != o.minor:
		return v.minor < o.minor
	case v.patch != o.patch:
		return v.patch < o.patch
	case v.pre == o.pre:
		return false
	case v.pre == "" || o.pre == "":
		return o.pre == ""
	}
	return lessPre(strings.Split(v.pre, "."), strings.Split(o.pre, "."))
}

// lessPre compares dot-separated identifiers: numbers by value and before words,
// and the shorter list first.
func lessPre(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errX == nil && errY == nil {
			return x < y
		}
		if (errX == nil) != (errY == nil) {
			return errX == nil
		}
		return a[i] < b[i]
	}
	return len(a) < len(b)
}

// parseVersion reads "v1.2.3", "1.2.3-rc.1" and "1.2.3+build". Distributions append
// their own with "~" ("1.6.20~ds1"), which is dropped: what they have fixed beyond
// the version cannot be told from it.
func parseVersion(s string) (semver, error) {
	var v semver
	rest, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "+")
	rest, _, _ = strings.Cut(rest, "~")
	core, pre, hasPre := strings.Cut(rest, "-")
	fields := strings.Split(core, ".")
	if len(fields) != 3 || hasPre && pre == "" {
		return v, fmt.Errorf("parse version %.40q: not of the form 1.2.3", s)
	}
	for i, into := range []*int{&v.major, &v.minor, &v.patch} {
		n, err := strconv.ParseUint(fields[i], 10, 16)
		if err != nil {
			return v, fmt.Errorf("parse version %.40q: not of the form 1.2.3", s)
		}
		*into = int(n)
	}
	v.pre = pre
	return v, nil
}
