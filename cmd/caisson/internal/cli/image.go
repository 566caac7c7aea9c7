package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Manage images",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  ShowHelp,
	}
	cmd.AddCommand(a.imageLsCommand(), a.imagePullCommand(), a.imageImportCommand(), a.imageFromHostCommand(), a.imageToolsCommand(), a.imageBuildCommand(), a.imageInspectCommand(), a.imageTagCommand(),
		a.imageSaveCommand(), a.imageDuCommand(), a.imageRmCommand(), a.imagePruneCommand())
	return cmd
}

func (a *App) imageLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images",
		Example: "  caisson image ls\n  caisson image ls -o json",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), a, (*api.Client).ListImages, &caissonv1.ListImagesRequest{}, func(r *caissonv1.ListImagesResponse) error {
				headings := []string{"NAME", "SIZE", "SOURCE", "CREATED", "DIGEST"}
				if a.wide {
					headings = append(headings, "OWNER")
				}
				return printList(a, r.Images, imageViewOf, headings, a.imageRow)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) imageRow(i *caissonv1.Image) []string {
	damaged := ""
	if i.Damaged != "" {
		damaged = " (damaged)"
	}
	if a.wide {
		return []string{i.Name, sizeCell(i.SizeBytes), i.Source, timeCell(i.CreatedAt), i.Digest + damaged, decimal(int64(i.Owner))}
	}
	digest := strings.TrimPrefix(i.Digest, "sha256:")
	return []string{i.Name, sizeCell(i.SizeBytes), i.Source, a.ageCell(i.CreatedAt), digest[:min(len(digest), idCell)] + damaged}
}

// sizeCell is a size to read, with one digit after the point.
func sizeCell(n int64) string {
	const step = 1024
	if n < step {
		return strconv.FormatInt(n, 10) + "B"
	}
	size, unit := float64(n), 0
	for ; size >= step && unit < 4; unit++ {
		size /= step
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + "BKMGT"[unit:unit+1]
}

func (a *App) imageInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect IMAGE",
		Short:             "Show details of an image as JSON",
		Example:           "  caisson image inspect base",
		Args:              Exactly("IMAGE"),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd.Context(), a, (*api.Client).InspectImage, &caissonv1.InspectImageRequest{Name: args[0]}, func(r *caissonv1.InspectImageResponse) error {
				return a.PrintJSON(imageDetailView{imageViewOf(r.Image), orEmpty(r.Layers), reportViewOf(r.Report), rawJSON(r.ConfigJson)})
			})
		},
	}
	a.jsonOnly(cmd)
	return cmd
}

func (a *App) imageRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm IMAGE...",
		Aliases:           []string{"remove"},
		Short:             "Remove images",
		Example:           "  caisson image rm tools",
		Args:              atLeastOne("IMAGE"),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(client *api.Client) error {
				return a.removeEach(args, func(name string) (string, error) {
					_, err := client.RemoveImage(cmd.Context(), &caissonv1.RemoveImageRequest{Name: name})
					return name, err
				})
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *App) imageFromHostCommand() *cobra.Command {
	req := &caissonv1.FromHostRequest{}
	cmd := &cobra.Command{
		Use:     "from-host NAME [--package P]... [--path DIR]...",
		Short:   "Create an image from software installed on the host",
		Long:    "Create an image from software installed on the host, with its dependencies. The files are\ncopied: the image shares nothing with the host.",
		Example: "  caisson image from-host python --package python3",
		Args:    Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if len(req.Packages)+len(req.Paths) == 0 {
				return Usage("there is nothing to collect: name a --package or a --path")
			}
			return a.fromHost(cmd.Context(), req)
		},
	}
	cmd.Flags().StringArrayVar(&req.Packages, "package", nil, "installed package `P` with its dependencies")
	cmd.Flags().StringArrayVar(&req.Paths, "path", nil, "copy the file or directory `DIR` as it is, with its libraries")
	a.outputFlags(cmd)
	return cmd
}

func (a *App) fromHost(ctx context.Context, req *caissonv1.FromHostRequest) error {
	return a.With(ctx, func(client *api.Client) error {
		r, err := client.FromHost(ctx, req, a.progress)
		if err != nil {
			return err
		}
		return a.printImported(r)
	})
}

// imported is the answer to an import, and the last line of progress of FromHost.
type imported interface {
	GetImage() *caissonv1.Image
	GetReport() *caissonv1.ImportReport
	GetReplaced() string
}

func (a *App) printImported(r imported) error {
	image := r.GetImage()
	if a.output == formatJSON {
		return a.PrintJSON(importedViewOf(r))
	}
	if r.GetReplaced() != "" {
		a.progress("replaced the image " + image.GetName() + ", " + r.GetReplaced())
	}
	return a.PrintLine("%s %s", printable(image.GetName()), printable(image.GetDigest()))
}
