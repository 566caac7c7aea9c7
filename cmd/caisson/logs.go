package main

import (
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *app) logsCommand() *cobra.Command {
	req := &caissonv1.LogsRequest{}
	cmd := &cobra.Command{
		Use:               "logs [flags] SANDBOX",
		Short:             "Show the output of a command",
		Long:              "Show the output of a command: its standard output on standard output, its standard error on\nstandard error. Without --exec it is the command of caisson run.",
		Args:              exactly("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Ref = args[0]
			if req.Follow && a.output == formatJSON {
				return usage("--follow and --json exclude each other: an object has an end")
			}
			if err := checkOffsets(req.StdoutOffset, req.StderrOffset); err != nil {
				return err
			}
			if req.Stream == "stderr" && cmd.Flags().Changed("offset") { // the one stream that there is
				req.StderrOffset = req.StdoutOffset
			}
			return a.with(cmd.Context(), func(client *api.Client) error { return a.showLogs(cmd.Context(), client, req) })
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "follow until the command ends")
	cmd.Flags().StringVar(&req.ExecId, "exec", "", "command `ID` (see caisson ps)")
	offsetFlags(cmd, &req.StdoutOffset, &req.StderrOffset)
	cmd.Flags().StringVar(&req.Stream, "stream", "", "show only `STREAM`: stdout or stderr")
	a.outputFlags(cmd)
	a.rawFlag(cmd)
	return cmd
}

func (a *app) showLogs(ctx context.Context, client *api.Client, req *caissonv1.LogsRequest) error {
	if a.output == formatTable {
		return client.Logs(ctx, req, &shownStream{a, "stdout", a.shown(a.stdout)}, &shownStream{a, "stderr", a.shown(a.stderr)})
	}
	stdout, stderr := newKeptStream(req.StdoutOffset, math.MaxInt64), newKeptStream(req.StderrOffset, math.MaxInt64) // no limit: the daemon bounds what it keeps
	if err := client.Logs(ctx, req, stdout, stderr); err != nil {
		return err
	}
	o := objectOutput{stdout: stdout, stderr: stderr}
	v := o.view(stdout.reached(), stderr.reached())
	a.sayLeftOut("stdout", v.StdoutSkipped)
	a.sayLeftOut("stderr", v.StderrSkipped)
	return a.printJSON(v)
}
