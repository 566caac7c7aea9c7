package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// defaultControlFiles decide what git, editors, agents and services that build do on the host.
var defaultControlFiles = []string{
	".git/config", ".git/config.worktree", ".git/hooks/**", ".git/info/**", ".git/modules/**/config", ".git/modules/**/hooks/**",
	".vscode/**", ".idea/**", ".cursor/**", ".claude/**", ".codex/**", ".mcp.json", ".envrc", ".husky/**", ".pre-commit-config.yaml",
	".github/workflows/**", ".gitlab-ci.yml", ".devcontainer/**",
}

// validate refuses roots that are no paths, and patterns that match nothing.
func (w Workspaces) validate() (errs []error) {
	for _, root := range w.AllowedRoots {
		errs = append(errs, absolute("workspaces.allowed_roots", root))
	}
	for _, pattern := range w.ControlFiles {
		if slices.ContainsFunc(strings.Split(pattern, "/"), matchesNothing) {
			errs = append(errs, fmt.Errorf("workspaces.control_files: %q is no path below a directory, give one such as .git/hooks/**", pattern))
		}
	}
	if w.Kept < 0 || w.Kept > 1<<12 {
		errs = append(errs, fmt.Errorf("workspaces.kept: %d is not in 0 to %d", w.Kept, 1<<12))
	}
	if w.KeptBytes < 0 {
		errs = append(errs, fmt.Errorf("workspaces.kept_bytes: %d is negative", w.KeptBytes))
	}
	if v := time.Duration(w.KeptFor); v < time.Minute || v > 366*24*time.Hour {
		errs = append(errs, fmt.Errorf("workspaces.kept_for: %s is not in %s to %s", v, time.Minute, 366*24*time.Hour))
	}
	return errs
}

// matchesNothing reports whether a part of a pattern is the name of no file.
func matchesNothing(part string) bool {
	_, err := path.Match(part, "")
	return err != nil || part == "" || part == "." || part == ".."
}
