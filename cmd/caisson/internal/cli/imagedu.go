package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func (a *App) imageDuCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "du",
		Short:   "Show how much of the disk images take",
		Example: "  caisson image du",
		Args:    Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), a, (*api.Client).ImageUsage, &caissonv1.ImageUsageRequest{}, func(r *caissonv1.ImageUsageResponse) error {
				err := printList(a, r.Images, diskUsageViewOf, []string{"NAME", "OWNER", "STORED", "SHARED", "UNPACKED"}, diskUsageRow)
				if err == nil && a.output != formatJSON {
					a.progress(fmt.Sprintf("stored together: %s", sizeCell(r.StoredBytes)))
				}
				return err
			})
		},
	}
	a.outputFlags(cmd)
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
	return []string{v.Name, decimal(int64(v.Owner)), sizeCell(v.Stored), sizeCell(v.Shared), sizeCell(v.Unpacked)}
}
