package images

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func imageImportCommand(a *cli.App) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "import [--name NAME] FILE|DIR|STORE:IMAGE|-",
		Short: "Import an image from an archive, directory or store of the host",
		Long: "Import an image: an OCI layout, a docker-archive (docker save), a tar of a root file\n" +
			"system, or a directory with an OCI layout or a root file system. This program reads the\n" +
			"files and sends them. The daemon opens none of your files.\n\n" +
			"STORE is docker-daemon, containers-storage (of podman) or containerd: their own programs\n" +
			"docker, podman and ctr write the image, with your rights.",
		Example: "  caisson image import docker-daemon:python:3.12\n  caisson image import --name tools ./rootfs",
		Args:    cli.Exactly("FILE|DIR|STORE:IMAGE|-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("name") && name == "" {
				return cli.Usage("--name is empty: leave it out for the name that the archive states")
			}
			archive, err := openArchive(a, cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer archive.Close()
			return importImage(a, cmd.Context(), name, archive)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the image (default: the name in the archive)")
	a.OutputFlags(cmd)
	return cmd
}

func importImage(a *cli.App, ctx context.Context, name string, archive io.Reader) error {
	return a.With(ctx, func(client *api.Client) error {
		sent, done := a.Sending("sent", archive, cli.SizeOf(archive))
		r, err := client.ImportImage(ctx, name, sent)
		done()
		if err != nil {
			return err
		}
		return PrintImported(a, r)
	})
}

// openArchive opens what is to be imported: a file as it is, a folder as a tar, an image of
// a store as its program saves it.
func openArchive(a *cli.App, ctx context.Context, path string) (io.ReadCloser, error) {
	if save, err := saveCommand(path); save != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return saveImage(ctx, save)
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return a.OpenArchive(path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, cli.ArchiveError(err)
	}
	return packed(root, a.Progress), nil
}

// packed returns root as a tar that is made while it is read.
func packed(root *os.Root, warn func(string)) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer root.Close()
		w.CloseWithError(pack(root, w, warn))
	}()
	return r
}
