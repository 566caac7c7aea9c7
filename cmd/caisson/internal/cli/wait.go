package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const waitLong = `Block until a sandbox, or one of its commands, ends. Exit with the exit code of the
command. Without EXEC that is the command of caisson run, if the sandbox has one. This
works too if the sandbox is removed in the meantime.

With flags that select sandboxes, block until all of them have ended, and exit with the
first exit code that is not 0.`

func (a *App) waitCommand() *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:               "wait [flags] [SANDBOX [EXEC]]",
		Short:             "Block until a sandbox or a command ends",
		Long:              waitLong,
		Example:           "  caisson wait job\n  caisson wait agent 3\n  caisson wait --session nightly",
		Args:              cobra.ArbitraryArgs, // selected refuses none
		ValidArgsFunction: a.completeExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || f.given(cmd) {
				return a.withSelected(cmd, &f, args, a.waitForAll)
			}
			if err := waitArgs(cmd, args); err != nil {
				return err
			}
			return ask(cmd.Context(), a, wait, args, func(end ended) error {
				if a.output == formatJSON {
					if err := a.PrintJSON(end.view); err != nil {
						return err
					}
				}
				if code := end.result.GetExitCode(); code != 0 {
					return ExitStatus(code)
				}
				return nil
			})
		},
	}
	f.registerSelecting(cmd)
	a.outputFlags(cmd)
	return cmd
}

// waitForAll waits for all of refs at once: one that is removed while another is waited for
// would be unknown.
func (a *App) waitForAll(ctx context.Context, client *api.Client, refs []string) error {
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
	if a.output != formatJSON || len(errs) == 0 {
		told = printList(a, ends, sandboxViewOf, []string{"NAME", "EXIT"}, func(s *caissonv1.Sandbox) []string {
			return []string{printable(s.Name), strconv.Itoa(int(s.GetResult().GetExitCode()))}
		})
	}
	if len(errs) > 0 || told != nil || code == 0 {
		return failedEach(errs, told, partView{Changed: each(ends, sandboxViewOf)}, len(ends))
	}
	return ExitStatus(code)
}

func waitArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Exactly("SANDBOX", "EXEC")(cmd, args)
	}
	return Exactly("SANDBOX")(cmd, args)
}

// ended is what was waited for, and how its command ended.
type ended struct {
	view   any
	result *caissonv1.Result
}

func wait(c *api.Client, ctx context.Context, args []string) (ended, error) {
	if len(args) == 2 {
		e, err := c.WaitExec(ctx, args[0], args[1])
		return ended{execViewOf(e), e.GetResult()}, err
	}
	s, err := waitSandbox(c, ctx, args[0])
	return ended{sandboxViewOf(s), s.GetResult()}, err
}

func waitSandbox(c *api.Client, ctx context.Context, ref string) (*caissonv1.Sandbox, error) {
	s, err := c.Wait(ctx, ref)
	if err == nil && s.GetResult() == nil && len(s.GetArgs()) > 0 { // no exit code is not 0
		err = sbxerr.New(sbxerr.State, "caisson.wait", "sandbox %s ended, and it is not known how its command did", s.GetName())
	}
	return s, err
}
