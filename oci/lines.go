package oci

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// MountLines describes the mounts of spec for people, one line each: destination, source,
// options, and the reason for each mount of the base set.
func MountLines(spec *specs.Spec) []string {
	if spec == nil {
		return nil
	}
	var lines []string
	if r := spec.Root; r != nil {
		lines = append(lines, mountLine("/", r.Path, []string{rootMode(r)}, rootReason(spec)))
	}
	for _, m := range spec.Mounts {
		source := m.Source
		if m.Type != "bind" {
			source = m.Type
		}
		lines = append(lines, mountLine(m.Destination, source, m.Options, reason(m)))
	}
	return lines
}

func rootReason(s *specs.Spec) string {
	if isUnisolated(s) {
		return "the host's own files, without isolation; nosuid,nodev"
	}
	return "the image and the sandbox's own /etc, already mounted nosuid,nodev"
}

// isUnisolated reports whether s is one of BuildUnisolated.
func isUnisolated(s *specs.Spec) bool {
	return s.Linux != nil && !slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.UserNamespace })
}

func rootMode(r *specs.Root) string {
	if r.Readonly {
		return "ro"
	}
	return "rw"
}

func mountLine(dest, source string, options []string, why string) string {
	line := fmt.Sprintf("%s  %s  %s", dest, source, strings.Join(options, ","))
	if why != "" {
		line += "  # " + why
	}
	return line
}

func reason(m specs.Mount) string {
	if m.Destination == InitMount || filepath.Base(m.Source) == "init" {
		return "pid 1 and its socket, a private copy of this sandbox"
	}
	i := slices.IndexFunc(baseMounts, func(b baseMount) bool { return b.destination == m.Destination })
	if i < 0 {
		return ""
	}
	return baseMounts[i].why
}
