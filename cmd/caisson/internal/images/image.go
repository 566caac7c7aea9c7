// Package images has the verbs of images.
package images

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func ImageCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Manage images",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(imageLsCommand(a), imagePullCommand(a), imageImportCommand(a), imageFromHostCommand(a), imageToolsCommand(a), imageBuildCommand(a), imageInspectCommand(a), imageTagCommand(a),
		imageSaveCommand(a), imageDuCommand(a), imageRmCommand(a), imagePruneCommand(a))
	return cmd
}

func imageLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images",
		Example: "  caisson image ls\n  caisson image ls -o json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ListImages, &caissonv1.ListImagesRequest{}, func(r *caissonv1.ListImagesResponse) error {
				headings := []string{"NAME", "SIZE", "SOURCE", "CREATED", "DIGEST"}
				if a.Wide {
					headings = append(headings, "OWNER")
				}
				return cli.PrintList(a, r.Images, headings, func(i *caissonv1.Image) []string { return imageRow(a, i) })
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func imageRow(a *cli.App, i *caissonv1.Image) []string {
	damaged := ""
	if i.Damaged != "" {
		damaged = " (damaged)"
	}
	if a.Wide {
		return []string{i.Name, cli.SizeCell(i.SizeBytes), i.Source, cli.TimeCell(i.CreatedAt), i.Digest + damaged, cli.Decimal(int64(i.Owner))}
	}
	digest := strings.TrimPrefix(i.Digest, "sha256:")
	return []string{i.Name, cli.SizeCell(i.SizeBytes), i.Source, a.AgeCell(i.CreatedAt), digest[:min(len(digest), cli.IdCell)] + damaged}
}

func imageInspectCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect IMAGE",
		Short:             "Show details of an image as JSON",
		Example:           "  caisson image inspect base",
		Args:              cli.Exactly("IMAGE"),
		ValidArgsFunction: a.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).InspectImage, &caissonv1.InspectImageRequest{Name: args[0]}, func(r *caissonv1.InspectImageResponse) error {
				return a.PrintJSON(r)
			})
		},
	}
	a.JsonOnly(cmd)
	return cmd
}

func imageRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm IMAGE...",
		Aliases:           []string{"remove"},
		Short:             "Remove images",
		Example:           "  caisson image rm tools",
		Args:              cli.AtLeastOne("IMAGE"),
		ValidArgsFunction: a.CompleteImages,
		RunE: a.RemoveNamed(func(ctx context.Context, client *api.Client, name string) error {
			_, err := client.RemoveImage(ctx, &caissonv1.RemoveImageRequest{Name: name})
			return err
		}),
	}
	a.OutputFlags(cmd)
	return cmd
}

func imageFromHostCommand(a *cli.App) *cobra.Command {
	req := &caissonv1.FromHostRequest{}
	cmd := &cobra.Command{
		Use:     "from-host NAME [--package P]... [--path DIR]...",
		Short:   "Create an image from software installed on the host",
		Long:    "Create an image from software installed on the host, with its dependencies. The files are\ncopied: the image shares nothing with the host.",
		Example: "  caisson image from-host python --package python3",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if len(req.Packages)+len(req.Paths) == 0 {
				return cli.Usage("there is nothing to collect: name a --package or a --path")
			}
			return fromHost(a, cmd.Context(), req)
		},
	}
	cmd.Flags().StringArrayVar(&req.Packages, "package", nil, "installed package `P` with its dependencies")
	cmd.Flags().StringArrayVar(&req.Paths, "path", nil, "copy the file or directory `DIR` as it is, with its libraries")
	a.OutputFlags(cmd)
	return cmd
}

func fromHost(a *cli.App, ctx context.Context, req *caissonv1.FromHostRequest) error {
	return a.With(ctx, func(client *api.Client) error {
		r, err := client.FromHost(ctx, req, a.Progress)
		if err != nil {
			return err
		}
		return PrintImported(a, r)
	})
}

// imported is the answer to an import, and the last line of progress of FromHost.
type imported interface {
	proto.Message
	GetImage() *caissonv1.Image
	GetReplaced() string
}

func PrintImported(a *cli.App, r imported) error {
	image := r.GetImage()
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(r)
	}
	if r.GetReplaced() != "" {
		a.Progress("replaced the image " + image.GetName() + ", " + r.GetReplaced())
	}
	return a.PrintLine("%s %s", cli.Printable(image.GetName()), cli.Printable(image.GetDigest()))
}
