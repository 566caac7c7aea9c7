package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

func (a *App) imagePullCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "pull NAME[:TAG][@DIGEST] | --all",
		Short: "Pull an image from a registry",
		Long: "Pull an image from a registry that the daemon's configuration allows. Your credentials are\n" +
			"those of docker login (config.json in $DOCKER_CONFIG or ~/.docker, with its helpers). They\n" +
			"are sent with the request and not kept.",
		Example: "  caisson image pull registry.example.com/tools/python:3.12\n  caisson image pull docker.io/library/debian:12",
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return Exactly()(cmd, args)
			}
			return Exactly("NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				if all {
					return a.pullAll(cmd.Context(), client)
				}
				r, err := a.pull(cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				return a.printImported(r)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "pull the images that profiles, pools and languages of the configuration name")
	a.outputFlags(cmd)
	return cmd
}

// pull has the daemon fetch one image, with the user's credentials, and shows how far it is.
func (a *App) pull(ctx context.Context, client *api.Client, name string) (*caissonv1.ImageProgress, error) {
	credentials, err := a.registryCredentials(ctx, name)
	if err != nil {
		return nil, err
	}
	show := a.pullDisplay()
	defer show.end()
	r, err := client.PullImage(ctx, &caissonv1.PullImageRequest{Name: name, Credentials: credentials}, show.progress)
	if err == nil && r.Present {
		show.line(name + " is up to date")
	}
	return r, err
}

func (a *App) pullAll(ctx context.Context, client *api.Client) error {
	show := a.pullDisplay()
	defer show.end()
	var done []importedView
	_, err := client.PullImage(ctx, &caissonv1.PullImageRequest{All: true}, func(p *caissonv1.ImageProgress) {
		show.progress(p)
		if i := p.GetImage(); i != nil {
			done = append(done, importedViewOf(p))
			show.line(i.Name + " " + i.Digest)
		}
	})
	if a.output == formatJSON && err == nil {
		return a.PrintJSON(orEmpty(done))
	}
	return err
}

// The values of --pull.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// pullFlag is --pull of the commands that make a sandbox.
type pullFlag string

// String, Set and Type implement pflag.Value.
func (p *pullFlag) String() string { return string(*p) }

func (p *pullFlag) Set(s string) error {
	switch s {
	case pullMissing, pullAlways, pullNever:
		*p = pullFlag(s)
		return nil
	}
	return fmt.Errorf("use missing, always or never")
}

func (p *pullFlag) Type() string { return "when" }

func (p *pullFlag) register(cmd *cobra.Command) {
	*p = pullMissing
	cmd.Flags().Var(p, "pull", "pull the image `WHEN`: missing, always or never (only if its name has a registry)")
	_ = cmd.RegisterFlagCompletionFunc("pull", cobra.FixedCompletions([]string{pullMissing, pullAlways, pullNever}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// pulled calls make, which needs image. An image that is there costs no call: only the
// daemon's answer that it is missing has it pulled.
func pulled[T any](ctx context.Context, a *App, client *api.Client, when pullFlag, image string, make func() (T, error)) (T, error) {
	var none T
	if when == pullAlways && hasRegistry(image) {
		if _, err := a.pull(ctx, client, image); err != nil {
			return none, err
		}
	}
	made, err := make()
	if when != pullMissing || sbxerr.Of(err) != sbxerr.ImageNotFound || !hasRegistry(image) {
		return made, err
	}
	if _, pullErr := a.pull(ctx, client, image); pullErr != nil {
		if sbxerr.Of(pullErr) != sbxerr.PullRefused {
			return none, pullErr
		}
		e, refusal := *api.Explain(err), api.Explain(pullErr)
		e.Remedy = fmt.Sprintf("it is not pulled: %s; %s", refusal.Message, refusal.Remedy)
		return none, &e
	}
	return make()
}

// pullMissing pulls an image that is not there, before a terminal is made raw: bars need
// it as it is.
func (a *App) pullMissing(ctx context.Context, client *api.Client, when pullFlag, image string) error {
	if when != pullMissing || !hasRegistry(image) {
		return nil
	}
	_, err := pulled(ctx, a, client, when, image, func() (*caissonv1.InspectImageResponse, error) {
		return client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: image})
	})
	return err
}

// hasRegistry reports whether a name begins with a host, as Docker tells it.
func hasRegistry(image string) bool {
	host, _, found := strings.Cut(image, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}
