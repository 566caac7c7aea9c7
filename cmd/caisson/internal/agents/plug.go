package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

func plugCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plug",
		Short: "Run the commands of an unmodified agent in a sandbox",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(plugClaudeCommand(a), plugCodexCommand(a))
	return cmd
}

// plugged is the sandbox of an agent: the directory that it works in has the same path
// inside and outside, so that both see the same files under the same names.
func plugged(p *cli.Parser, box *specflags.SandboxFlags, agent string) *caissonv1.SandboxSpec {
	spec := box.Spec(p)
	dir, err := os.Getwd()
	if err != nil {
		p.Refuse(cli.Usage("the working directory: %w", err))
		return spec
	}
	if spec.Workspace == nil {
		spec.Workspace = &caissonv1.Workspace{Dir: dir, Mode: "rw"}
	}
	if spec.Workspace.Path == "" {
		spec.Workspace.Path = spec.Workspace.Dir
	}
	if spec.Name == "" {
		spec.Name = pluggedName(agent, spec.Workspace.Dir)
	}
	return spec
}

// notInName is what a sandbox's name cannot hold.
var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

// pluggedName is the same for the same directory: an agent finds its sandbox again.
func pluggedName(agent, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	base := notInName.ReplaceAllString(filepath.Base(dir), "-")
	return agent + "-" + base[:min(len(base), 20)] + "-" + hex.EncodeToString(sum[:4])
}
