package cli

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = time.Second

func (a *App) CompletionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a completion script for a shell",
		Long:      "Print a completion script for a shell. The one for bash works with the package\nbash-completion and without it.",
		Example:   "  source <(caisson completion bash)",
		Args:      Exactly("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				_, err := io.WriteString(a.Stdout, bareBash)
				return OwnOutput(errors.Join(cmd.Root().GenBashCompletionV2(a.Stdout, true), err))
			case "zsh":
				return OwnOutput(cmd.Root().GenZshCompletion(a.Stdout))
			case "fish":
				return OwnOutput(cmd.Root().GenFishCompletion(a.Stdout, true))
			}
			return Usage("there is no completion for %q, only for bash, zsh and fish", args[0])
		},
	}
}

// bareBash stands in for the two functions of the package bash-completion that the script
// uses. Bash parts words at the signs of COMP_WORDBREAKS too, so at "=" and ":".
const bareBash = `if ! declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref() {
        local line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1))
        cur=${words[cword]} prev=${words[cword - 1]}
    }
fi
if ! declare -F __ltrim_colon_completions >/dev/null; then
    __ltrim_colon_completions() {
        local i before=${1%"${1##*:}"}
        [[ $COMP_WORDBREAKS == *:* ]] || return 0
        for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$before"}; done
    }
fi
`

// CompleteSandboxes offers the names there are. It starts no daemon.
func (a *App) CompleteSandboxes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.List(ctx, &caissonv1.ListRequest{})
		return Each(r.GetSandboxes(), (*caissonv1.Sandbox).GetName), err
	})
}

// CompleteImages is the same for images.
func (a *App) CompleteImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.ListImages(ctx, &caissonv1.ListImagesRequest{})
		return Each(r.GetImages(), (*caissonv1.Image).GetName), err
	})
}

// noProfile is the name of no profile, nor near to one: its refusal lists those there are.
const noProfile = "?"

// listedProfiles finds them there.
var listedProfiles = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:; there are|is none of) ([^;\n]+)`) })

// completeProfiles offers the profiles that the caller may use.
func (a *App) completeProfiles(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		_, err := c.Spec(ctx, &caissonv1.SpecRequest{Spec: &caissonv1.RunSpec{
			Sandbox: &caissonv1.SandboxSpec{Profile: noProfile}, Exec: &caissonv1.ExecSpec{Args: []string{"true"}},
		}})
		if err == nil {
			return nil, nil
		}
		e := api.Explain(err)
		list := listedProfiles().FindStringSubmatch(e.Message + "\n" + e.Cause)
		if list == nil {
			return nil, err
		}
		return strings.Split(list[1], ", "), nil
	})
}

// CompleteExecs offers sandboxes, and then the commands of the one that is named.
func (a *App) CompleteExecs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.CompleteSandboxes(cmd, args, word)
	case 1:
		return a.ExecsOf(cmd, args[0])
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// ExecsOf completes the IDs of a sandbox's commands, with the arguments of each as its description.
func (a *App) ExecsOf(cmd *cobra.Command, ref string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		execs, err := c.Execs(ctx, ref)
		return Each(execs, func(e *caissonv1.Exec) string { return e.Id + "\t" + strings.Join(e.Args, " ") }), err
	})
}

func (a *App) Complete(cmd *cobra.Command, names func(context.Context, *api.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	client, err := a.RunningClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer client.Close()
	list, err := names(ctx, client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
