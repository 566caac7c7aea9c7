package images

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func imageDuCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "du",
		Short:   "Show how much of the disk images take",
		Example: "  caisson image du",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Ask(cmd.Context(), a, (*api.Client).ImageUsage, &caissonv1.ImageUsageRequest{}, func(r *caissonv1.ImageUsageResponse) error {
				if a.Output == cli.FormatJSON {
					return a.PrintJSON(r)
				}
				err := a.PrintTable([]string{"NAME", "OWNER", "STORED", "SHARED", "UNPACKED"}, cli.Each(r.Images, diskUsageRow))
				if err == nil {
					a.Progress(fmt.Sprintf("stored together: %s", cli.SizeCell(r.StoredBytes)))
				}
				return err
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func diskUsageRow(u *caissonv1.DiskUsage) []string {
	i := u.GetImage()
	return []string{i.GetName(), cli.Decimal(int64(i.GetOwner())), cli.SizeCell(i.GetSizeBytes()), cli.SizeCell(u.GetSharedBytes()), cli.SizeCell(u.GetUnpackedBytes())}
}
