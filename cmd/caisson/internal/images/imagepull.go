package images

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

func imagePullCommand(a *cli.App) *cobra.Command {
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
				return cli.Exactly()(cmd, args)
			}
			return cli.Exactly("NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				if all {
					return pullAll(a, cmd.Context(), client)
				}
				r, err := pull(a, cmd.Context(), client, args[0])
				if err != nil {
					return err
				}
				return PrintImported(a, r)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "pull the images that profiles, pools and languages of the configuration name")
	a.OutputFlags(cmd)
	return cmd
}

// pull has the daemon fetch one image, with the user's credentials, and shows how far it is.
func pull(a *cli.App, ctx context.Context, client *api.Client, name string) (*caissonv1.ImageProgress, error) {
	credentials, err := registryCredentials(a, ctx, name)
	if err != nil {
		return nil, err
	}
	show := newPullDisplay(a)
	defer show.end()
	r, err := client.PullImage(ctx, &caissonv1.PullImageRequest{Name: name, Credentials: credentials}, show.progress)
	if err == nil && r.Present {
		show.line(name + " is up to date")
	}
	return r, err
}

func pullAll(a *cli.App, ctx context.Context, client *api.Client) error {
	show := newPullDisplay(a)
	defer show.end()
	var done []*caissonv1.ImageProgress
	_, err := client.PullImage(ctx, &caissonv1.PullImageRequest{All: true}, func(p *caissonv1.ImageProgress) {
		show.progress(p)
		if i := p.GetImage(); i != nil {
			done = append(done, p)
			show.line(i.Name + " " + i.Digest)
		}
	})
	if a.Output == cli.FormatJSON && err == nil {
		return a.PrintJSON(cli.Messages(a, done))
	}
	return err
}

// Pulled calls make, which needs image. An image that is there costs no call: only the
// daemon's answer that it is missing has it pulled.
func Pulled[T any](ctx context.Context, a *cli.App, client *api.Client, when specflags.PullFlag, image string, make func() (T, error)) (T, error) {
	var none T
	if when == specflags.PullAlways && hasRegistry(image) {
		if _, err := pull(a, ctx, client, image); err != nil {
			return none, err
		}
	}
	made, err := make()
	if when != specflags.PullMissing || sbxerr.Of(err) != sbxerr.ImageNotFound || !hasRegistry(image) {
		return made, err
	}
	if _, pullErr := pull(a, ctx, client, image); pullErr != nil {
		if sbxerr.Of(pullErr) != sbxerr.PullRefused {
			return none, pullErr
		}
		e, refusal := *api.Explain(err), api.Explain(pullErr)
		e.Remedy = fmt.Sprintf("it is not pulled: %s; %s", refusal.Message, refusal.Remedy)
		return none, &e
	}
	return make()
}

// PullMissing pulls an image that is not there, before a terminal is made raw: bars need
// it as it is.
func PullMissing(a *cli.App, ctx context.Context, client *api.Client, when specflags.PullFlag, image string) error {
	if when != specflags.PullMissing || !hasRegistry(image) {
		return nil
	}
	_, err := Pulled(ctx, a, client, when, image, func() (*caissonv1.InspectImageResponse, error) {
		return client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: image})
	})
	return err
}

// hasRegistry reports whether a name begins with a host, as Docker tells it.
func hasRegistry(image string) bool {
	host, _, found := strings.Cut(image, "/")
	return found && (strings.ContainsAny(host, ".:") || host == "localhost")
}
