package main

import (
	"bytes"

	"github.com/spf13/cobra"

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
		Use:               "logs [-f] SANDBOX",
		Short:             "Show the kept output of a sandbox's command",
		Long:              "Show the kept output of a sandbox's command: its standard output on\nstandard output, its standard error on standard error.",
		Args:              exactly("SANDBOX"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Ref = args[0]
			if req.Follow && a.output == formatJSON {
				return usage("--follow and --json exclude each other: an object has an end")
			}
			client, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			if a.output == formatTable {
				return client.Logs(cmd.Context(), req, a.stdout, a.stderr)
			}
			var stdout, stderr bytes.Buffer // what the daemon kept is bounded
			if err := client.Logs(cmd.Context(), req, &stdout, &stderr); err != nil {
				return err
			}
			var v logsView
			v.Stdout, v.StdoutEncoding = encode(stdout.Bytes())
			v.Stderr, v.StderrEncoding = encode(stderr.Bytes())
			return a.printJSON(v)
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().StringVar(&req.Stream, "stream", "", "only this `STREAM`, stdout or stderr")
	a.outputFlags(cmd)
	return cmd
}
