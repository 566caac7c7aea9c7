package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = time.Second

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a completion script for a shell",
		Example:   "  source <(caisson completion bash)",
		Args:      exactly("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return ownOutput(cmd.Root().GenBashCompletionV2(a.stdout, true))
			case "zsh":
				return ownOutput(cmd.Root().GenZshCompletion(a.stdout))
			case "fish":
				return ownOutput(cmd.Root().GenFishCompletion(a.stdout, true))
			}
			if near := nearest(args[0], shells); near != "" {
				return usage("there is no completion for %q; did you mean %q?", args[0], near)
			}
			return usage("there is no completion for %q, only for bash, zsh and fish", args[0])
		},
	}
}

// completeSandboxes offers the names there are. It starts no daemon.
func (a *app) completeSandboxes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.List(ctx, &caissonv1.ListRequest{})
		return each(r.GetSandboxes(), (*caissonv1.Sandbox).GetName), err
	})
}

// completeImages is the same for images.
func (a *app) completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.ListImages(ctx, &caissonv1.ListImagesRequest{})
		return each(r.GetImages(), (*caissonv1.Image).GetName), err
	})
}

func (a *app) complete(cmd *cobra.Command, names func(context.Context, *api.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	client := api.Dial(a.socket)
	defer client.Close()
	list, err := names(ctx, client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
