package codex

import (
	"context"
	"path"
	"strings"
)

type walkParams struct {
	Path    string
	Sandbox *sandboxContext
	Options struct {
		MaxDepth, MaxDirectories, MaxEntries            int
		FollowDirectorySymlinks, PruneHiddenDirectories bool
	}
}

type walkEntry struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

type walkError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

type walkResult struct {
	Entries   []walkEntry `json:"entries"`
	Errors    []walkError `json:"errors"`
	Truncated bool        `json:"truncated"`
}

// level is a directory that a walk has to read.
type level struct {
	dir   string
	depth int
}

// walk lists a tree, level by level. A directory that links lead to twice is read once.
func (s *session) walk(ctx context.Context, p walkParams) (any, error) {
	b, root, err := s.at(ctx, p.Path, p.Sandbox, accessRead, true)
	if err != nil {
		return nil, err
	}
	if _, err := s.list(ctx, b, root); err != nil {
		return nil, err
	}
	r := walkResult{Entries: []walkEntry{}, Errors: []walkError{}}
	seen := map[string]bool{}
	for queue := []level{{root, 0}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		real, err := s.real(ctx, b, at.dir, false)
		if seen[real] {
			continue
		}
		if len(seen) == p.Options.MaxDirectories {
			r.Truncated = true
			break
		}
		var list []found
		if err == nil {
			seen[real] = true
			list, err = s.list(ctx, b, at.dir)
		}
		if err != nil {
			r.Errors = append(r.Errors, walkError{uriOf(at.dir), err.Error()})
			continue
		}
		for _, f := range list {
			if f.kind != "file" && f.kind != "directory" {
				continue
			}
			if len(r.Entries) == p.Options.MaxEntries {
				r.Truncated = true
				return r, nil
			}
			name := path.Join(at.dir, f.name)
			r.Entries = append(r.Entries, walkEntry{uriOf(name), f.kind})
			hidden := p.Options.PruneHiddenDirectories && strings.HasPrefix(f.name, ".")
			if f.kind == "directory" && at.depth < p.Options.MaxDepth && !hidden && (!f.link || p.Options.FollowDirectorySymlinks) {
				queue = append(queue, level{name, at.depth + 1})
			}
		}
	}
	return r, nil
}
