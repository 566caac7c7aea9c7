package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// logsView is what logs --json prints.
type logsView struct {
	Stdout         string `json:"stdout"`
	StdoutEncoding string `json:"stdout_encoding"`
	Stderr         string `json:"stderr"`
	StderrEncoding string `json:"stderr_encoding"`
}

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
	cmd.Flags().StringVar(&req.Exec, "exec", "", "command `ID` (see caisson ps)")
	offsetFlags(cmd, &req.StdoutOffset, &req.StderrOffset)
	cmd.Flags().StringVar(&req.Stream, "stream", "", "show only `STREAM`: stdout or stderr")
	a.outputFlags(cmd)
	a.rawFlag(cmd)
	return cmd
}

func (a *app) showLogs(ctx context.Context, client *api.Client, req *caissonv1.LogsRequest) error {
	if a.output == formatTable {
		return client.Logs(ctx, req, a.shown(a.stdout), a.shown(a.stderr))
	}
	var stdout, stderr bytes.Buffer // what the daemon kept is bounded
	if err := client.Logs(ctx, req, &stdout, &stderr); err != nil {
		return err
	}
	var v logsView
	v.Stdout, v.StdoutEncoding = encode(stdout.Bytes())
	v.Stderr, v.StderrEncoding = encode(stderr.Bytes())
	return a.printJSON(v)
}
