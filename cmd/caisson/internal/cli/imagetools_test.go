package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/server/servertest"
)

// Without a package manager, or where it knows none of the tools, nothing is asked of the
// daemon.
func TestImageToolsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ program, want string }{
		"neither dpkg nor rpm": {"", "neither dpkg nor rpm"},
		"none is installed":    {"#!/bin/sh\nexit 1\n", "is installed on this host"},
		"only configuration":   {"#!/bin/sh\nprintf config-files\n", "is installed on this host"},
	} {
		dir := t.TempDir()
		if tt.program != "" {
			if err := os.WriteFile(filepath.Join(dir, "dpkg-query"), []byte(tt.program), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		if code, _, stderr := invoke(t, &servertest.Fake{}, "", "image", "tools"); code != 125 || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "SBX-209") {
			t.Errorf("%s: %d, %q", name, code, stderr)
		}
	}
}
