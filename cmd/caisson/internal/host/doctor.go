// Package host has the verbs that are about the host and its daemon.
package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// exitUnhealthy is doctor's code where a run would fail on this host.
const exitUnhealthy = 1

func DoctorCommand(a *cli.App) *cobra.Command {
	var bundle string
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Check whether this host can run sandboxes",
		Long:    "Check whether this host can run sandboxes. The daemon does it if it runs, else caissond\ndoctor. Exit with 1 if a check failed.\nWith --bundle, write what a report of a defect needs to a new file instead.",
		Example: "  caisson doctor\n  caisson doctor --json\n  caisson doctor --bundle report.tar.gz",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bundle != "" {
				return writeBundle(a, cmd.Context(), bundle)
			}
			r, err := examine(a, cmd.Context())
			if err != nil {
				return err
			}
			return printDoctor(a, r)
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "write the archive `FILE`, without secrets and names of what runs")
	a.OutputFlags(cmd)
	return cmd
}

func printDoctor(a *cli.App, r *caissonv1.DoctorResponse) error {
	var err error
	if a.Output == cli.FormatJSON {
		err = a.PrintJSON(r)
	} else {
		err = printChecks(a, r.Checks)
	}
	if err == nil && !r.Ok {
		return cli.ExitStatus(exitUnhealthy)
	}
	return err
}

// printChecks prints all checks, and below each what to do.
func printChecks(a *cli.App, checks []*caissonv1.DoctorCheck) error {
	var rows [][]string
	for _, c := range checks {
		rows = append(rows, []string{c.Status, c.Name, c.Detail})
		if c.Remedy != "" {
			remedy := "remedy: " + c.Remedy
			if c.Code != "" {
				remedy += " [" + c.Code + "]"
			}
			rows = append(rows, []string{"", "", remedy})
		}
	}
	return a.PrintTable([]string{"STATUS", "CHECK", "DETAIL"}, rows)
}

// examine has the host examined by the daemon, or by its program where none runs.
func examine(a *cli.App, ctx context.Context) (*caissonv1.DoctorResponse, error) {
	client, err := a.RunningClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r, err := client.Doctor(ctx, &caissonv1.DoctorRequest{})
	if elsewhere, _ := a.Elsewhere(); !elsewhere && errors.Is(err, sbxerr.DaemonOff) {
		return doctorAlone(a, ctx, err)
	}
	return r, err
}

// doctorAlone lets the daemon's program examine the host. off is what to say
// where there is no such program.
func doctorAlone(a *cli.App, ctx context.Context, off error) (*caissonv1.DoctorResponse, error) {
	path, err := a.FindDaemon()
	if err != nil {
		return nil, off
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "doctor", "--json")
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, a.Stderr, os.Environ()
	err = cmd.Run()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited) && exited.ExitCode() > exitUnhealthy: // it has told
		return nil, cli.ExitStatus(exited.ExitCode())
	case err != nil && (exited == nil || exited.ExitCode() < 0):
		return nil, sbxerr.Wrap(sbxerr.Binary, "caisson.doctor", err)
	}
	r := &caissonv1.DoctorResponse{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Binary, "caisson.doctor", fmt.Errorf("read what %s says: %w", path, err))
	}
	return r, nil
}
