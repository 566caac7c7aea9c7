package execs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const waitLong = `Block until a sandbox, or one of its commands, ends. Exit with the exit code of the
command. Without EXEC that is the command of caisson run, if the sandbox has one. This
works too if the sandbox is removed in the meantime.

With flags that select sandboxes, block until all of them have ended, and exit with the
first exit code that is not 0.`

func WaitCommand(a *cli.App) *cobra.Command {
	var f cli.FilterFlags
	cmd := &cobra.Command{
		Use:               "wait [flags] [SANDBOX [EXEC]]",
		Short:             "Block until a sandbox or a command ends",
		Long:              waitLong,
		Example:           "  caisson wait job\n  caisson wait agent 3\n  caisson wait --session nightly",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.CompleteExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || f.Given(cmd) {
				return a.WithSelected(cmd, &f, args, func(ctx context.Context, client *api.Client, refs []string) error {
					return waitForAll(a, ctx, client, refs)
				})
			}
			if err := waitArgs(cmd, args); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, wait, args, func(end ended) error {
				if a.Output == cli.FormatJSON {
					if err := a.PrintJSON(end.Message); err != nil {
						return err
					}
				}
				if code := end.result.GetExitCode(); code != 0 {
					return cli.ExitStatus(code)
				}
				return nil
			})
		},
	}
	f.RegisterSelecting(cmd)
	a.OutputFlags(cmd)
	return cmd
}

// waitForAll waits for all of refs at once: one that is removed while another is waited for
// would be unknown.
func waitForAll(a *cli.App, ctx context.Context, client *api.Client, refs []string) error {
	ends, errs := make([]*caissonv1.Sandbox, len(refs)), make([]error, len(refs))
	var all sync.WaitGroup
	for i, ref := range refs {
		all.Go(func() {
			if ends[i], errs[i] = waitSandbox(client, ctx, ref); errs[i] != nil {
				ends[i], errs[i] = nil, fmt.Errorf("%s: %w", ref, errs[i])
			}
		})
	}
	all.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	ends = slices.DeleteFunc(ends, func(s *caissonv1.Sandbox) bool { return s == nil })
	code := int32(0)
	for _, s := range ends {
		code = cmp.Or(code, s.GetResult().GetExitCode())
	}
	var told error
	if a.Output != cli.FormatJSON || len(errs) == 0 {
		told = cli.PrintList(a, ends, []string{"NAME", "EXIT"}, func(s *caissonv1.Sandbox) []string {
			return []string{cli.Printable(s.Name), strconv.Itoa(int(s.GetResult().GetExitCode()))}
		})
	}
	if len(errs) > 0 || told != nil || code == 0 {
		return cli.FailedEach(errs, told, cli.Part{Changed: cli.Messages(a, ends)}, len(ends))
	}
	return cli.ExitStatus(code)
}

func waitArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Exactly("SANDBOX", "EXEC")(cmd, args)
	}
	return cli.Exactly("SANDBOX")(cmd, args)
}

// ended is what was waited for, and how its command ended.
type ended struct {
	proto.Message
	result *caissonv1.Result
}

func wait(c *api.Client, ctx context.Context, args []string) (ended, error) {
	if len(args) == 2 {
		e, err := c.WaitExec(ctx, args[0], args[1])
		return ended{e, e.GetResult()}, err
	}
	s, err := waitSandbox(c, ctx, args[0])
	return ended{s, s.GetResult()}, err
}

func waitSandbox(c *api.Client, ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	s, err := c.Wait(ctx, ref)
	if err == nil && s.GetResult() == nil && len(s.GetArgs()) > 0 { // no exit code is not 0
		err = sbxerr.New(sbxerr.State, "caisson.wait", "sandbox %s ended, and it is not known how its command did", s.GetName())
	}
	return s, err
}
