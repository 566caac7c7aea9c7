package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// FilterFlags select sandboxes by label, state, session, task, name and age.
type FilterFlags struct {
	labels, states []string
	session, task  string
	name, older    string
	all            bool
}

func (f *FilterFlags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "only sandboxes with label `K=V`")
	flags.StringVar(&f.name, "name", "", "only sandboxes whose name matches `PATTERN`, such as 'build-*'")
	flags.StringVar(&f.session, "session", "", "only sandboxes of session `ID`")
	flags.StringVar(&f.task, "task", "", "only sandboxes of task `ID`")
	flags.StringArrayVar(&f.states, "state", nil, "only sandboxes in `STATE`: creating, running, paused, stopping or exited")
	flags.StringVar(&f.older, "older-than", "", "only sandboxes created `DURATION` ago or earlier, such as 2h")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"creating", "running", "paused", "stopping", "exited"}, cobra.ShellCompDirectiveNoFileComp))
}

// RegisterSelecting registers them for a verb that must select something.
func (f *FilterFlags) RegisterSelecting(cmd *cobra.Command) {
	f.Register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "all sandboxes that you may see")
}

// Given reports whether a flag selects.
func (f *FilterFlags) Given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"label", "name", "session", "task", "state", "older-than", "all"}, cmd.Flags().Changed)
}

func (f *FilterFlags) Request(p *Parser) *caissonv1.ListRequest {
	p.NotEmpty("name", "session", "task")
	return &caissonv1.ListRequest{
		Labels: p.Labels(f.labels), Name: f.name, Session: f.session, Task: f.task, States: f.states, OlderThan: p.Duration("older-than", f.older),
	}
}

// selected are the sandboxes that a command line names, by reference or by a filter. One
// that selects none is no error.
func (a *App) selected(cmd *cobra.Command, f *FilterFlags, refs []string) ([]string, error) {
	list, err := a.SelectedOf(cmd, f, refs)
	if list == nil {
		return refs, err
	}
	return Each(list, (*caissonv1.Sandbox).GetId), err
}

// SelectedOf returns the sandboxes that the flags select, or nil if the command line names
// sandboxes instead.
func (a *App) SelectedOf(cmd *cobra.Command, f *FilterFlags, refs []string) (list []*caissonv1.Sandbox, err error) {
	p := Parser{Flags: cmd.Flags()}
	req := f.Request(&p)
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
		list = append([]*caissonv1.Sandbox{}, answer.GetSandboxes()...)
		return err
	})
	return list, err
}

// WithSelected calls do with the sandboxes that the command line names.
func (a *App) WithSelected(cmd *cobra.Command, f *FilterFlags, refs []string, do func(context.Context, *api.Client, []string) error) error {
	refs, err := a.selected(cmd, f, refs)
	if err != nil {
		return err
	}
	return a.With(cmd.Context(), func(client *api.Client) error { return do(cmd.Context(), client, refs) })
}
