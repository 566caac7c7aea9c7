package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/backup"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const rootUsage = "`DIR` of the daemon (default: " + defaultRoot + ")"

const leftOut = "left out: "

// BackupCommand is the verb backup.
func BackupCommand(a *cli.App) *cobra.Command {
	var root string
	var o backup.Options
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Write what must outlive the host to a tar (root)",
		Long: "Write images, volumes, snapshots, changesets, references of secrets, keys and the\n" +
			"audit log to a tar. Values of secrets are in none of them. Stop the daemon first,\n" +
			"so that nothing changes meanwhile. Sandboxes are not in it: snapshot them first.",
		Example: "  caisson backup /mnt/backup/host.tar",
		Args:    cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := rootOf(a, cmd.Context(), "backup", root)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				r, err := backup.Create(cmd.Context(), dir, a.Stdout, a.Now(), o)
				return sayDone(a, r, err, true, leftOut)
			}
			r, err := backUpTo(cmd.Context(), a, dir, args[0], o)
			return sayDone(a, r, err, false, leftOut)
		},
	}
	cmd.Flags().StringVar(&root, "root", "", rootUsage)
	cmd.Flags().BoolVar(&o.NoImages, "no-images", false, "leave images out: a bundle carries them, or a pull")
	a.OutputFlags(cmd)
	return cmd
}

// backUpTo writes a new file. One that is not whole is removed again.
func backUpTo(ctx context.Context, a *cli.App, root, path string, o backup.Options) (_ *backup.Result, err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.ClientIO, "caisson.backup", err)
	}
	defer dir.Close()
	name := filepath.Base(path)
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.ClientIO, "caisson.backup", err)
	}
	r, err := backup.Create(ctx, root, f, a.Now(), o)
	if err == nil {
		err = sbxerr.Wrap(sbxerr.ClientIO, "caisson.backup", f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, dir.Remove(name))
	}
	return r, nil
}

// RestoreCommand is the verb restore.
func RestoreCommand(a *cli.App) *cobra.Command {
	var root string
	var o backup.Options
	cmd := &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Read a backup into a host (root)",
		Long: "Read what caisson backup wrote. All of it is read and its SHA-256 compared before\n" +
			"anything is put in its place. A restore over existing items is refused, and changes\n" +
			"nothing. The audit log of the other host goes beside that of this one, as\n" +
			"audit.restored-TIME. Stop the daemon first.",
		Example: "  caisson restore /mnt/backup/host.tar\n  caisson restore --skip-existing /mnt/backup/host.tar",
		Args:    cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := rootOf(a, cmd.Context(), "restore", root)
			if err != nil {
				return err
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return sbxerr.Wrap(sbxerr.ClientIO, "caisson.restore", err)
			}
			var from io.Reader = a.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return sbxerr.Wrap(sbxerr.ClientIO, "caisson.restore", err)
				}
				defer f.Close() // it is only read
				from = f
			}
			r, err := backup.Restore(cmd.Context(), dir, from, o)
			return sayDone(a, r, err, false, "was there: ")
		},
	}
	cmd.Flags().StringVar(&root, "root", "", rootUsage)
	cmd.Flags().BoolVar(&o.NoImages, "no-images", false, "leave images out")
	cmd.Flags().BoolVar(&o.SkipExisting, "skip-existing", false, "skip items that exist here already")
	a.OutputFlags(cmd)
	return cmd
}

// sayDone prints what was done: beside a backup that is the output.
func sayDone(a *cli.App, r *backup.Result, err error, beside bool, left string) error {
	switch {
	case err != nil:
		return err
	case a.Output == cli.FormatJSON && !beside:
		return a.PrintJSON(r)
	}
	say := func(line string) error { return a.PrintLine("%s", line) }
	if beside {
		say = func(line string) error { a.Progress(line); return nil }
	}
	for _, c := range r.Counts {
		err = errors.Join(err, say(fmt.Sprintf("%s: %d items, %d bytes", c.Part, c.Items, c.Bytes)))
	}
	for _, name := range r.Left {
		err = errors.Join(err, say(left+cli.Printable(name)))
	}
	return err
}
