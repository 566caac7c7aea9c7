package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = time.Second

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a completion script for a shell",
		Long:      "Print a completion script for a shell. The one for bash works with the package\nbash-completion and without it.",
		Example:   "  source <(caisson completion bash)",
		Args:      exactly("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				_, err := io.WriteString(a.stdout, bareBash)
				return ownOutput(errors.Join(cmd.Root().GenBashCompletionV2(a.stdout, true), err))
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

// completeExecs offers sandboxes, and then the commands of the one that is named.
func (a *app) completeExecs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeSandboxes(cmd, args, word)
	case 1:
		return a.execsOf(cmd, args[0])
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// execsOf offers the commands of a sandbox, each with what it runs.
func (a *app) execsOf(cmd *cobra.Command, ref string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		execs, err := c.Execs(ctx, ref)
		return each(execs, func(e *caissonv1.Exec) string { return e.Id + "\t" + strings.Join(e.Args, " ") }), err
	})
}

// completePlaces offers SANDBOX: and paths inside, and leaves files of the host to the shell.
func (a *app) completePlaces(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	place := parsePlace(word)
	if place.ref == "" {
		names, _ := a.completeSandboxes(cmd, args, word)
		return each(names, func(name string) string { return name + ":" }), cobra.ShellCompDirectiveNoSpace
	}
	dir, _ := path.Split(place.path)
	names, directive := a.complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.ListDir(ctx, &caissonv1.ListDirRequest{Ref: place.ref, Path: cmp.Or(dir, "/")})
		return each(r.GetFiles(), func(f *caissonv1.FileInfo) string {
			name := place.ref + ":" + path.Join("/", dir, path.Base(f.Path))
			if f.Type == "directory" {
				name += "/"
			}
			return name
		}), err
	})
	return names, directive | cobra.ShellCompDirectiveNoSpace
}

// completeCodes offers error codes.
func completeCodes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return each(sbxerr.All(), func(d sbxerr.Description) string { return string(d.Code) + "\t" + d.Summary }), cobra.ShellCompDirectiveNoFileComp
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
