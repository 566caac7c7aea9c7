package execs

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func LogsCommand(a *cli.App) *cobra.Command {
	req := &caissonv1.LogsRequest{}
	var f cli.FilterFlags
	var last, since, until string
	cmd := &cobra.Command{
		Use:               "logs [flags] SANDBOX",
		Short:             "Show the output of a command",
		Long:              "Show the output of a command: its standard output on standard output, its standard error on\nstandard error. Without --exec it is the command of caisson run. With flags that select\nsandboxes, each line begins with the name of its sandbox.\n\nTimes are those at which caisson read the output, to 10 ms and more coarsely for old output of\ncommands that write for minutes. --since and --until show all that may have come between them.",
		Example:           "  caisson logs --follow job\n  caisson logs --tail 20 --exec 3 agent\n  caisson logs --tail 5 --session nightly\n  caisson logs --timestamps --since 10m job",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := readTimes(a, cmd, since, until, req); err != nil {
				return err
			}
			if len(args) == 0 || f.Given(cmd) {
				return logsOfAll(a, cmd, &f, args, req, last)
			}
			if err := cli.Exactly("SANDBOX")(cmd, args); err != nil {
				return err
			}
			req.Ref = args[0]
			if req.Follow && a.Output == cli.FormatJSON {
				return cli.Usage("--follow and --json exclude each other: an object has an end")
			}
			if err := checkOffsets(req.StdoutOffset, req.StderrOffset); err != nil {
				return err
			}
			if req.Stream == "stderr" && cmd.Flags().Changed("offset") { // the one stream that there is
				req.StderrOffset = req.StdoutOffset
			}
			if last != "" && last != "all" {
				return lastLogs(a, cmd, req, last)
			}
			return a.With(cmd.Context(), func(client *api.Client) error { return showLogs(a, cmd.Context(), client, req) })
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "follow until the command ends")
	cmd.Flags().StringVarP(&last, "tail", "n", "all", "show the last `N` lines of each stream, or all")
	cmd.Flags().StringVar(&since, "since", "", "show output since `TIME|DURATION`, such as 2026-01-02T15:04:05Z or 10m")
	cmd.Flags().StringVar(&until, "until", "", "show output before `TIME|DURATION`")
	cmd.Flags().BoolVarP(&req.Timestamps, "timestamps", "t", false, "show timestamps")
	cmd.Flags().StringVar(&req.ExecId, "exec", "", "command `ID` (see caisson ps)")
	_ = cmd.RegisterFlagCompletionFunc("exec", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.ExecsOf(cmd, args[0])
	})
	offsetFlags(cmd, &req.StdoutOffset, &req.StderrOffset)
	f.RegisterSelecting(cmd)
	cmd.Flags().StringVar(&req.Stream, "stream", "", "show only `STREAM`: stdout or stderr")
	a.OutputFlags(cmd)
	a.RawFlag(cmd)
	return cmd
}

// lastLogs is logs --tail.
func lastLogs(a *cli.App, cmd *cobra.Command, req *caissonv1.LogsRequest, last string) error {
	lines, err := tailLines(last)
	if err != nil {
		return err
	}
	if a.Output == cli.FormatJSON || req.StdoutOffset+req.StderrOffset > 0 {
		return cli.Usage("--tail excludes --json and offsets")
	}
	return a.With(cmd.Context(), func(client *api.Client) error {
		return tailLogs(a, cmd.Context(), client, req, lines, &shownStream{a, "stdout", a.Shown(a.Stdout)}, &shownStream{a, "stderr", a.Shown(a.Stderr)})
	})
}

func tailLines(last string) (int, error) {
	lines, err := strconv.ParseUint(last, 10, 31)
	if err != nil {
		return 0, cli.Usage("--tail: %q is not a number of lines, and not all", last)
	}
	return int(lines), nil
}

func showLogs(a *cli.App, ctx context.Context, client *api.Client, req *caissonv1.LogsRequest) error {
	if a.Output == cli.FormatTable {
		stdout, stderr := &shownStream{a, "stdout", a.Shown(a.Stdout)}, &shownStream{a, "stderr", a.Shown(a.Stderr)}
		return client.Logs(ctx, req, datedLines(stdout, req.Timestamps), datedLines(stderr, req.Timestamps))
	}
	stdout := &datedKept{keptStream: newKeptStream(req.StdoutOffset, math.MaxInt64)} // no limit: the daemon bounds what it keeps
	stderr := &datedKept{keptStream: newKeptStream(req.StderrOffset, math.MaxInt64)}
	if err := client.Logs(ctx, req, stdout, stderr); err != nil {
		return err
	}
	o := objectOutput{app: a, stdout: stdout.keptStream, stderr: stderr.keptStream}
	f := o.finished(stdout.reached(), stderr.reached())
	f.Id = req.ExecId
	sayLeftOut(a, "stdout", f.StdoutSkipped)
	sayLeftOut(a, "stderr", f.StderrSkipped)
	if req.Timestamps {
		timed := timedLogs{output: a.Message(f)}
		timed.times.Stdout, timed.times.Stderr = append([]logTime{}, stdout.times...), append([]logTime{}, stderr.times...)
		return a.PrintJSON(timed)
	}
	return a.PrintJSON(f)
}

// readTimes reads --since and --until.
func readTimes(a *cli.App, cmd *cobra.Command, since, until string, req *caissonv1.LogsRequest) error {
	p := cli.Parser{Flags: cmd.Flags()}
	p.NotEmpty("since", "until")
	now := a.Now()
	from, to := p.Moment("since", since, now), p.Moment("until", until, now)
	if !from.IsZero() {
		req.Since = timestamppb.New(from)
	}
	if !to.IsZero() {
		req.Until = timestamppb.New(to)
	}
	return errors.Join(p.Errs...)
}
