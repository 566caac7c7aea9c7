package templates

import (
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// planOf is the build of a set-up on an image: first the copies, then the commands.
func planOf(s plan.Setup, base images.Stored) *buildplan.Plan {
	config := buildplan.Config{ImageConfig: base.Config.Config, Shell: base.Builds.Shell, OnBuild: base.Builds.OnBuild}
	stage := buildplan.Stage{Image: base.Key(), Base: -1, Text: "image " + base.Name, Needed: true, Config: config}
	for n, c := range s.Copy {
		stage.Steps = append(stage.Steps, buildplan.Step{
			Text: fmt.Sprintf("setup.copy[%d]: %s to %s", n, c.From, c.To),
			Copy: &buildplan.Copy{Stage: -1, Sources: []string{c.From}, Dest: c.To, Owner: "0:0"},
		})
	}
	shell := config.Shell
	if len(shell) == 0 {
		shell = []string{"/bin/sh", "-c"}
	}
	for n, script := range s.Run {
		stage.Steps = append(stage.Steps, buildplan.Step{
			Text: fmt.Sprintf("setup.run[%d]: %s", n, script),
			Run:  &buildplan.Run{Args: append(slices.Clone(shell), script), Env: slices.Clone(config.Env), Dir: config.WorkingDir},
		})
	}
	return &buildplan.Plan{Stages: []buildplan.Stage{stage}}
}

// stepRequest is what each command of a set-up asks of its sandbox.
func stepRequest(s plan.Setup) plan.CreateRequest {
	return plan.CreateRequest{Profile: s.Profile, Network: s.Network, Allow: s.Allow, Deny: s.Deny}
}
