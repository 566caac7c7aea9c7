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
				err := cli.PrintList(a, r.Images, diskUsageViewOf, []string{"NAME", "OWNER", "STORED", "SHARED", "UNPACKED"}, diskUsageRow)
				if err == nil && a.Output != cli.FormatJSON {
					a.Progress(fmt.Sprintf("stored together: %s", cli.SizeCell(r.StoredBytes)))
				}
				return err
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

type diskUsageView struct {
	Name     string `json:"name"`
	Owner    uint32 `json:"owner"`
	Stored   int64  `json:"stored_bytes"`
	Shared   int64  `json:"shared_bytes"` // of them
	Unpacked int64  `json:"unpacked_bytes"`
}

func diskUsageViewOf(u *caissonv1.DiskUsage) diskUsageView {
	i := u.GetImage()
	return diskUsageView{i.GetName(), i.GetOwner(), i.GetSizeBytes(), u.GetSharedBytes(), u.GetUnpackedBytes()}
}

func diskUsageRow(u *caissonv1.DiskUsage) []string {
	v := diskUsageViewOf(u)
	return []string{v.Name, cli.Decimal(int64(v.Owner)), cli.SizeCell(v.Stored), cli.SizeCell(v.Shared), cli.SizeCell(v.Unpacked)}
}
