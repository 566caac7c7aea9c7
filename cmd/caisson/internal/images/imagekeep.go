package images

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func imageTagCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "tag IMAGE NAME",
		Short:             "Give an image a second name",
		Example:           "  caisson image tag tools tools:1",
		Args:              cli.Exactly("IMAGE", "NAME"),
		ValidArgsFunction: a.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).TagImage, &caissonv1.TagImageRequest{Name: args[0], NewName: args[1]}, func(r *caissonv1.TagImageResponse) error {
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(r)
				}
				if r.Replaced != "" {
					a.Progress("replaced the image " + r.Image.GetName() + ", " + r.Replaced)
				}
				return a.PrintLine("%s %s", cli.Printable(r.Image.GetName()), cli.Printable(r.Image.GetDigest()))
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func imageSaveCommand(a *cli.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "save IMAGE... -o FILE|-",
		Short:             "Save images to a tar archive",
		Long:              "Save images to a tar archive that is both an OCI layout and a docker-archive: docker load,\npodman load and skopeo read it. caisson image import takes it if it holds one image.",
		Example:           "  caisson image save -o tools.tar tools\n  caisson image save -o - tools | docker load",
		Args:              cli.AtLeastOne("IMAGE"),
		ValidArgsFunction: a.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return cli.Usage("say where the archive goes: -o FILE, or -o - for standard output")
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				return saveImages(a, cmd.Context(), client, args, file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`, which is replaced when all is written; - is standard output")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the same")
	return cmd
}

func saveImages(a *cli.App, ctx context.Context, client *api.Client, names []string, path string) error {
	req := &caissonv1.SaveImagesRequest{Names: names}
	return a.SaveArchive(path, func(w io.Writer) error { return client.SaveImages(ctx, req, w) })
}

func imagePruneCommand(a *cli.App) *cobra.Command {
	var filters []string
	req := &caissonv1.PruneImagesRequest{}
	cmd := &cobra.Command{
		Use:   "prune --filter FILTER[,FILTER]",
		Short: "Remove images that nothing needs",
		Long: "Remove your images that no sandbox and no profile, pool or language of the configuration\n" +
			"needs. A filter says which: unused is all of them, until=DURATION those that were stored\n" +
			"so long ago.",
		Example: "  caisson image prune --dry-run --filter unused\n  caisson image prune --filter until=168h",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pruneFilters(req, filters); err != nil {
				return err
			}
			return cli.Ask(cmd.Context(), a, (*api.Client).PruneImages, req, func(r *caissonv1.PruneImagesResponse) error { return printPruned(a, r) })
		},
	}
	cmd.Flags().StringSliceVar(&filters, "filter", nil, "remove only images that match `FILTER`: unused, until=DURATION such as until=168h")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "show what would be removed, and remove nothing")
	a.OutputFlags(cmd)
	return cmd
}

func pruneFilters(req *caissonv1.PruneImagesRequest, filters []string) error {
	if len(filters) == 0 {
		return cli.Usage("give a --filter: unused, or until=DURATION such as until=168h")
	}
	for _, f := range filters {
		key, value, _ := strings.Cut(f, "=")
		switch {
		case f == "unused":
			req.Unused = true
		case key == "until":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return cli.Usage("--filter %q: give a duration above 0, such as until=168h", f)
			}
			req.Until = durationpb.New(d)
		default:
			return cli.Usage("--filter %q: use unused or until=DURATION", f)
		}
	}
	return nil
}

func printPruned(a *cli.App, r *caissonv1.PruneImagesResponse) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	for _, i := range r.Images {
		if err := a.PrintLine("%s", cli.Printable(i.Name)); err != nil {
			return err
		}
	}
	a.Progress(fmt.Sprintf("%d images, %s", len(r.Images), cli.SizeCell(r.FreedBytes)))
	return nil
}
