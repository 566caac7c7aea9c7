package codex

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// sandboxContext is how Codex asks for a sandbox of its own kind, for one call. Nil asks for
// none; the sandbox of this executor holds all the same.
type sandboxContext struct {
	Permissions    *permissions
	WorkspaceRoots []string
}

type permissions struct {
	Type       string
	Network    string
	FileSystem *struct {
		Type    string
		Entries []entry
	} `json:"file_system"`
}

type entry struct {
	Path struct {
		Type, Path, Pattern string
		Value               struct{ Kind, Subpath string }
	}
	Access  string
	Missing string `json:"missing_path_behavior"`
}

// rule gives or takes access to a path and all below it. The longest path wins, and of
// equal ones the least access.
type rule struct {
	path   string
	access access
	skip   bool // where the path does not exist there is no rule
}

type access int

const (
	accessWrite access = iota
	accessRead
	accessDeny
)

var accesses = map[string]access{"write": accessWrite, "read": accessRead, "deny": accessDeny, "none": accessDeny}

// policy is what Codex asks for in one call.
type policy struct {
	offline    bool
	restricted bool // there is no access but by the rules
	rules      []rule
	globs      bool // some files have to be protected by a pattern
}

// policy reads what is asked for, and refuses what it does not know.
func (c *sandboxContext) policy() (policy, error) {
	var p policy
	if c == nil {
		return p, nil
	}
	want := c.Permissions
	switch {
	case want == nil:
		return p, refuse(codeParams, "sandbox.permissions is missing")
	case want.Type == "disabled":
		return p, nil
	case want.Type != "managed" && want.Type != "external":
		return p, refuse(codeParams, "unknown sandbox.permissions.type %.100q", want.Type)
	case want.Network != "restricted" && want.Network != "enabled":
		return p, refuse(codeParams, "unknown sandbox.permissions.network %.100q", want.Network)
	}
	p.offline = want.Network == "restricted"
	switch {
	case want.Type == "external":
		return p, nil
	case want.FileSystem == nil:
		return p, refuse(codeParams, "sandbox.permissions.file_system is missing")
	case want.FileSystem.Type == "unrestricted":
		return p, nil
	case want.FileSystem.Type != "restricted":
		return p, refuse(codeParams, "unknown sandbox.permissions.file_system.type %.100q", want.FileSystem.Type)
	}
	p.restricted = true
	for _, e := range want.FileSystem.Entries {
		if err := p.add(e, c.WorkspaceRoots); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *policy) add(e entry, roots []string) error {
	a, ok := accesses[e.Access]
	if !ok {
		return refuse(codeParams, "unknown access %.100q", e.Access)
	}
	var paths []string
	switch e.Path.Type {
	case "glob_pattern":
		p.globs = p.globs || a != accessWrite
		return nil
	case "path":
		paths = []string{e.Path.Path}
	case "special":
		switch e.Path.Value.Kind {
		case "root":
			paths = []string{"file:///"}
		case "project_roots", "current_working_directory":
			paths = roots
		case "tmpdir", "slash_tmp":
			paths = []string{"file:///tmp"}
		case "minimal": // the programs of the image
			for _, dir := range []string{"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "usr"} {
				paths = append(paths, "file:///"+dir)
			}
		default:
			return refuse(codeParams, "unknown special path %.100q", e.Path.Value.Kind)
		}
	default:
		return refuse(codeParams, "unknown type of path %.100q", e.Path.Type)
	}
	for _, uri := range paths {
		name, err := pathOf(uri)
		if err != nil {
			return err
		}
		p.rules = append(p.rules, rule{path.Join(name, e.Path.Value.Subpath), a, e.Missing == "skip"})
	}
	return nil
}

// under reports whether name is dir, or below it.
func under(dir, name string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// access is that to a path.
func (p policy) access(name string) access {
	if !p.restricted {
		return accessWrite
	}
	best := rule{access: accessDeny}
	for _, r := range p.rules {
		if under(r.path, name) && (len(r.path) > len(best.path) || len(r.path) == len(best.path) && r.access > best.access) {
			best = r
		}
	}
	return best.access
}

// least is the least access to a path and to all below it.
func (p policy) least(name string) access {
	a := p.access(name)
	for _, r := range p.rules {
		if under(name, r.path) {
			a = max(a, p.access(r.path))
		}
	}
	return a
}

// unkept are the rules that a sandbox with the workspace does not keep by itself: it hides
// nothing, and all of a writable workspace can be written to.
func (p policy) unkept(workspace string, readOnly bool) []rule {
	return slices.DeleteFunc(slices.Clone(p.rules), func(r rule) bool {
		switch {
		case r.path == "/" || p.access(r.path) != r.access: // the root is that of the image
			return true
		case r.access == accessRead:
			return readOnly && under(workspace, r.path) || p.access(path.Dir(r.path)) != accessWrite
		}
		return r.access == accessWrite
	})
}

// confined is the sandbox in which the policy holds for a command.
func (s *session) confined(ctx context.Context, p policy) (*box, error) {
	b, err := s.boxes.open(ctx, variant{})
	if err != nil {
		return nil, err
	}
	workspace := s.boxes.workspace()
	a := p.access(workspace)
	v := variant{readOnly: a != accessWrite && !b.readOnly, offline: p.offline && b.network != "none"}
	if a == accessDeny {
		return nil, refuse(codeFailed, "caisson cannot hide the workspace %s from a command", workspace)
	}
	if p.globs {
		return nil, s.cannot("files by a pattern")
	}
	var protected []string
	for _, r := range p.unkept(workspace, v.readOnly || b.readOnly) {
		kind, err := s.kind(ctx, b, r.path)
		switch {
		case err != nil:
			return nil, err
		case kind == "directory" && p.mountable(r, workspace):
			protected = append(protected, path.Base(r.path))
		case kind != "" || !r.skip && (r.access == accessRead || under(workspace, r.path)):
			return nil, s.cannot(r.path)
		}
	}
	slices.Sort(protected)
	v.protected = strings.Join(slices.Compact(protected), "/")
	return s.boxes.open(ctx, v)
}

// mountable reports whether a read-only mount keeps the rule. Further down, a directory
// between the workspace and the mount could be renamed.
func (p policy) mountable(r rule, workspace string) bool {
	return r.access == accessRead && path.Dir(r.path) == workspace && !slices.ContainsFunc(p.rules, func(o rule) bool {
		return under(r.path, o.path) && p.access(o.path) != accessRead
	})
}

func (s *session) cannot(what string) error {
	return refuse(codeFailed, "caisson cannot protect %s from one command, as Codex's own sandbox asks: start Codex with "+
		"--sandbox danger-full-access, so that caisson's sandbox alone holds, or with --sandbox read-only", what)
}

func (s *session) exists(ctx context.Context, b *box, name string) (bool, error) {
	kind, err := s.kind(ctx, b, name)
	return kind != "", err
}

// kind is the type of a file, without following a link; empty where there is none.
func (s *session) kind(ctx context.Context, b *box, name string) (string, error) {
	info, err := s.stat(ctx, b, name, false)
	if errors.Is(err, sbxerr.FileAbsent) || errors.Is(err, sbxerr.FileKind) {
		return "", nil
	}
	return info.GetType(), err
}
