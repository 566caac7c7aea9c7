package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// filterFlags select sandboxes by what they have.
type filterFlags struct {
	labels, states []string
	session, task  string
	name, older    string
	all            bool
}

func (f *filterFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "only sandboxes with label `K=V`")
	flags.StringVar(&f.name, "name", "", "only sandboxes whose name matches `PATTERN`, such as 'build-*'")
	flags.StringVar(&f.session, "session", "", "only sandboxes of session `ID`")
	flags.StringVar(&f.task, "task", "", "only sandboxes of task `ID`")
	flags.StringArrayVar(&f.states, "state", nil, "only sandboxes in `STATE`: creating, running, paused, stopping or exited")
	flags.StringVar(&f.older, "older-than", "", "only sandboxes created `DURATION` ago or earlier, such as 2h")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"creating", "running", "paused", "stopping", "exited"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerSelecting registers them for a verb that must select something.
func (f *filterFlags) registerSelecting(cmd *cobra.Command) {
	f.register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "all sandboxes that you may see")
}

// given reports whether a flag selects.
func (f *filterFlags) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"label", "name", "session", "task", "state", "older-than", "all"}, cmd.Flags().Changed)
}

func (f *filterFlags) request(p *Parser) *caissonv1.ListRequest {
	p.NotEmpty("name", "session", "task")
	return &caissonv1.ListRequest{
		Labels: p.labels(f.labels), Name: f.name, Session: f.session, Task: f.task, States: f.states, OlderThan: p.duration("older-than", f.older),
	}
}

// selected are the sandboxes that a command line names, by reference or by a filter. One
// that selects none is no error.
func (a *App) selected(cmd *cobra.Command, f *filterFlags, refs []string) ([]string, error) {
	list, err := a.selectedOf(cmd, f, refs)
	if list == nil {
		return refs, err
	}
	return each(list, (*caissonv1.Sandbox).GetId), err
}

// selectedOf returns the sandboxes that the flags select, or nil if the command line names
// sandboxes instead.
func (a *App) selectedOf(cmd *cobra.Command, f *filterFlags, refs []string) (list []*caissonv1.Sandbox, err error) {
	p := Parser{flags: cmd.Flags()}
	req := f.request(&p)
	filtered := proto.Size(req) > 0
	switch {
	case f.all && (filtered || len(refs) > 0):
		p.Refuse(Usage("give --all alone, or name or select sandboxes: %s", cmd.UseLine()))
	case filtered && len(refs) > 0:
		p.Refuse(Usage("name sandboxes, or select them by flags, not both: %s", cmd.UseLine()))
	case !filtered && !f.all && len(refs) == 0:
		p.Refuse(Usage("SANDBOX is missing, or a flag that selects some, such as --session or --label: %s", cmd.UseLine()))
	}
	if err := p.End(req); err != nil {
		return nil, err
	}
	if !filtered && !f.all {
		return nil, nil
	}
	err = a.With(cmd.Context(), func(client *api.Client) error {
		answer, err := client.List(cmd.Context(), req)
		list = orEmpty(answer.GetSandboxes())
		return err
	})
	return list, err
}

// withSelected calls do with the sandboxes that the command line names.
func (a *App) withSelected(cmd *cobra.Command, f *filterFlags, refs []string, do func(context.Context, *api.Client, []string) error) error {
	refs, err := a.selected(cmd, f, refs)
	if err != nil {
		return err
	}
	return a.With(cmd.Context(), func(client *api.Client) error { return do(cmd.Context(), client, refs) })
}
