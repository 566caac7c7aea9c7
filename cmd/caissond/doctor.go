package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/audit/export"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
	"github.com/caisson-run/caisson/runtime/doctor"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
)

// hostDoctor answers for a running daemon.
type hostDoctor struct {
	config func() *config.Config // in force
	ids    idblock.Range
	engine *ctrd.Engine

	exports []*export.Exporter
}

func (h hostDoctor) versions(ctx context.Context) (runtime.Versions, error) {
	v, err := h.engine.Versions(ctx)
	return runtime.Versions{
		Version: version, Commit: commit, GoVersion: goruntime.Version(),
		Containerd: v.Containerd, ContainerdAddress: h.config().Containerd.Address, Runc: v.Runc,
		Root: h.config().Root, Instance: h.config().Instance(),
	}, err
}

func (h hostDoctor) checks(ctx context.Context) ([]runtime.Check, error) {
	patient := patient(*h.config())
	patient.IDBase, patient.IDBlocks = h.ids.Base, h.ids.Blocks
	patient.Engine = func(ctx context.Context) (string, string, error) {
		v, err := h.engine.Versions(ctx)
		return v.Containerd, v.Runc, err
	}
	return slices.Concat(doctor.Examine(ctx, patient), h.imageChecks(ctx), h.exportChecks(), isolationChecks(*h.config()), remoteChecks(*h.config(), time.Now())), nil
}

func (h hostDoctor) capabilities(context.Context) ([]runtime.Capability, error) {
	host, err := cgroups.Detect()
	if err != nil {
		return nil, err
	}
	return doctor.Capabilities(host, runtime.MayRaiseLimits(), refusedModes(*h.config())), nil
}

// refusedModes are the network modes which are refused whoever asks for them, and why, for
// people.
func refusedModes(c config.Config) map[netns.Mode]error {
	filters := netns.Filters()
	_, open := policy.Compile(policy.Spec{Mode: policy.Open, AirGapped: c.AirGapped})
	refused := map[netns.Mode]error{}
	for mode, why := range map[netns.Mode]error{
		netns.ModeAllow: filters, netns.ModeOpen: errors.Join(filters, open), netns.ModeBridge: patient(c).Bridge.Ready(),
	} {
		if why != nil {
			refused[mode] = api.Explain(why)
		}
	}
	return refused
}

func patient(c config.Config) doctor.Host {
	bridge, _ := bridgeConfig(c) // one that is refused is not started with
	return doctor.Host{Root: c.Root, State: c.State, BinDir: c.BinDir, CgroupParent: c.Cgroup.Parent, External: c.Containerd.Address != "", Bridge: bridge,
		MaxSandboxes: int(c.Sandboxes.Max), Each: each(c)}
}

// each is the most that one sandbox may have which asks for nothing beside a profile.
func each(c config.Config) plan.Limits {
	var most plan.Limits
	known, _ := profiles(c) // which were checked with the configuration
	for _, p := range known {
		most.PIDs, most.OpenFiles = max(most.PIDs, p.Limits.PIDs), max(most.OpenFiles, p.Limits.HardOpenFiles())
	}
	return most
}

// preflight refuses to start where no sandbox could be made, before anything
// is.
func preflight(ctx context.Context, c config.Config) error {
	return doctor.Preflight(ctx, patient(c))
}

// errUnhealthy makes `caissond doctor` exit with a failure after it has told.
var errUnhealthy = errors.New("a run would fail on this host")

func doctorCommand(f *flags) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this host can run sandboxes, without a daemon",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(cmd)
			if err != nil {
				return err
			}
			checks := slices.Concat(doctor.Examine(cmd.Context(), patient(c)), isolationChecks(c), remoteChecks(c, time.Now()))
			healthy := doctor.Refusal(checks) == nil
			if err := printChecks(cmd.OutOrStdout(), checks, healthy, asJSON); err != nil {
				return err
			}
			if !healthy {
				return errUnhealthy
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printChecks(w io.Writer, checks []runtime.Check, healthy, asJSON bool) error {
	if asJSON {
		return writeJSON(w, struct {
			OK     bool            `json:"ok"`
			Checks []runtime.Check `json:"checks"`
		}{healthy, checks})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STATUS\tCHECK\tDETAIL\tCODE\tREMEDY")
	for _, c := range checks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Status, c.Name, c.Detail, c.Code, c.Remedy)
	}
	return t.Flush()
}
