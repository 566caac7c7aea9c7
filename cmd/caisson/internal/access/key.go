// Package access has the verbs about daemons that are called from elsewhere.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/keys"
)

// defaultRoot is that of a daemon that is told no other.
const defaultRoot = "/var/lib/caisson"

const keyLong = "Manage the keys by which callers from the network act for users of the daemon. The daemon serves\n" +
	"the network where listen.tcp of its configuration says so. Keys are files of the daemon's root, so\n" +
	"no daemon needs to run, and no call can make one. They are for root alone, on the daemon's host."

// KeyCommand is the verb key.
func KeyCommand(a *cli.App) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Manage the keys of callers from the network (root)",
		Long:  keyLong,
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.PersistentFlags().StringVar(&root, "root", "", "`DIR` of the daemon (default: that of the daemon that runs, or "+defaultRoot+")")
	cmd.AddCommand(keyCreateCommand(a, &root), keyLsCommand(a, &root), keyRmCommand(a, &root))
	return cmd
}

// rootOf is the directory of the daemon: the one that is given, that of the daemon that runs, or
// the usual one.
func rootOf(a *cli.App, ctx context.Context, verb, given string) (string, error) {
	if err := a.RequireLocal(verb); err != nil {
		return "", err
	}
	if a.Euid != 0 {
		return "", sbxerr.WithRemedy(sbxerr.Rights, "caisson."+verb, errors.New(verb+" is for root alone"), "run this command as root on the daemon's host")
	}
	if given != "" {
		return given, nil
	}
	client, err := a.RunningClient()
	if err != nil {
		return "", err
	}
	defer client.Close()
	r, err := client.Version(ctx, &caissonv1.VersionRequest{})
	switch {
	case err == nil:
		return r.Root, nil
	case errors.Is(err, sbxerr.DaemonOff) && a.Socket == a.AutoSocket:
		return defaultRoot, nil
	case errors.Is(err, sbxerr.DaemonOff):
		return "", sbxerr.WithRemedy(sbxerr.DaemonOff, "caisson."+verb, err, "name the root of the daemon: caisson "+verb+" --root DIR")
	}
	return "", err
}

type keyFlags struct {
	as, expires        string
	certificate, admin bool
}

func keyCreateCommand(a *cli.App, root *string) *cobra.Command {
	var f keyFlags
	cmd := &cobra.Command{
		Use:   "create NAME --as USER",
		Short: "Make a key that acts for a user, and show it once",
		Long: "Make a key by which a caller from the network acts for a user of the host: with the rights, quotas\n" +
			"and ceilings that uids: of an entry under peers: in the daemon's configuration gives that user, and\n" +
			"with its sandboxes. The user needs no account; give a number of its own to a caller that shares\n" +
			"nothing with a user of the host. The key is printed once, and only what tells whether one is right\n" +
			"is kept. The daemon takes it within a second. With --certificate no key is made: a certificate\n" +
			"that listen.client_ca signed acts for the user if it has NAME as common name, host or mail address.",
		Example: "  caisson key create ci --as 20001 --expires 30d\n  caisson key create build.example.com --as ann --certificate",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := f.key(args[0], a.Now().UTC().Truncate(time.Second))
			if err != nil {
				return err
			}
			dir, err := rootOf(a, cmd.Context(), "key", *root)
			if err != nil {
				return err
			}
			secret, err := keys.Create(dir, k)
			if err != nil {
				return missing(err, dir)
			}
			return printKey(a, k, secret)
		},
	}
	cmd.Flags().StringVar(&f.as, "as", "", "`USER` for whom it acts, by name or number")
	cmd.Flags().StringVar(&f.expires, "expires", "", "after this `DURATION`, such as 30d or 12h, it counts no more (default: never)")
	cmd.Flags().BoolVar(&f.certificate, "certificate", false, "make no key: NAME is that of certificates of clients")
	cmd.Flags().BoolVar(&f.admin, "admin", false, "it acts for root: it sees all, and may do all that is offered over the network")
	a.OutputFlags(cmd)
	return cmd
}

// missing explains an error about a root that is not there.
func missing(err error, root string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return sbxerr.WithRemedy(sbxerr.StateDir, "caisson.key", fmt.Errorf("there is no root of a daemon in %s", root), "start the daemon once, or name its root: caisson key --root DIR")
	}
	return err
}

func (f keyFlags) key(name string, now time.Time) (keys.Key, error) {
	k := keys.Key{Name: name, Certificate: f.certificate, Admin: f.admin, Created: now}
	switch {
	case f.as == "" && !f.admin:
		return k, cli.Usage("--as is missing: name the user for whom the key acts, or give --admin for root")
	case f.as != "" && f.admin:
		return k, cli.Usage("--as and --admin exclude each other: --admin acts for root")
	case f.as != "":
		var err error
		if k.UID, k.GID, err = account(f.as); err != nil {
			return k, err
		}
		if k.UID == 0 {
			return k, cli.Usage("--as %s is root: give --admin instead", f.as)
		}
	}
	if f.expires == "" {
		return k, nil
	}
	life, err := lifeOf(f.expires)
	if err != nil {
		return k, err
	}
	k.Expires = now.Add(life)
	return k, nil
}

// account looks up a user by name, or takes a number. The group is that of its account, or has
// the same number.
func account(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if n, numErr := strconv.ParseUint(name, 10, 32); numErr == nil {
		if u, err = user.LookupId(name); err != nil {
			return uint32(n), uint32(n), nil
		}
	}
	if err != nil {
		return 0, 0, cli.Usage("--as: there is no user %q on this host: give a name or a number", sbxerr.Clip(name))
	}
	id, idErr := strconv.ParseUint(u.Uid, 10, 32)
	group, groupErr := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), errors.Join(idErr, groupErr)
}

const day = 24 * time.Hour

func lifeOf(text string) (time.Duration, error) {
	life, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int64
		if n, err = strconv.ParseInt(days, 10, 32); err == nil {
			life = time.Duration(min(n, 36500)) * day
		}
	}
	if err != nil || life < time.Second {
		return 0, cli.Usage("--expires: %q is no duration from now, give one such as 30d or 12h", sbxerr.Clip(text))
	}
	return life, nil
}

// keyView is a key without what tells whether one is right.
type keyView struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	UID      uint32     `json:"uid"`
	Admin    bool       `json:"admin"`
	Created  time.Time  `json:"created_at"`
	Expires  *time.Time `json:"expires_at,omitempty"`
	LastUsed *time.Time `json:"used_at,omitempty"`
	Expired  bool       `json:"expired"`
	Key      string     `json:"key,omitempty"` // of create alone
}

func viewOf(k keys.Key, used time.Time, now time.Time) keyView {
	v := keyView{Name: k.Name, Kind: "key", UID: k.UID, Admin: k.Admin, Created: k.Created, Expired: k.Expired(now)}
	if k.Certificate {
		v.Kind = "certificate"
	}
	if !k.Expires.IsZero() {
		v.Expires = &k.Expires
	}
	if !used.IsZero() {
		used = used.UTC().Truncate(time.Second)
		v.LastUsed = &used
	}
	return v
}

func printKey(a *cli.App, k keys.Key, secret string) error {
	if a.Output == cli.FormatJSON {
		v := viewOf(k, time.Time{}, k.Created)
		v.Key = secret
		return a.PrintJSON(v)
	}
	if secret != "" {
		a.Progress("this key is not shown again; keep it in a file that you alone can read")
	}
	return a.PrintLine("%s", cmp.Or(secret, k.Name))
}

func keyLsCommand(a *cli.App, root *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List keys, without what they are",
		Example: "  caisson key ls",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := rootOf(a, cmd.Context(), "key", *root)
			if err != nil {
				return err
			}
			list, err := keys.Read(dir)
			if err != nil {
				return missing(err, dir)
			}
			return printKeys(a, list, keys.Used(dir))
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printKeys(a *cli.App, list []keys.Key, used map[string]time.Time) error {
	views := []keyView{}
	var rows [][]string
	for _, k := range list {
		v := viewOf(k, used[k.Name], a.Now())
		views = append(views, v)
		acts := "uid " + strconv.FormatUint(uint64(k.UID), 10)
		if k.Admin {
			acts = "root"
		}
		expires := "never"
		switch {
		case v.Expired:
			expires = "expired"
		case v.Expires != nil:
			expires = v.Expires.Format(time.DateOnly)
		}
		rows = append(rows, []string{k.Name, v.Kind, acts, ageOf(a, &k.Created), expires, ageOf(a, v.LastUsed)})
	}
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(views)
	}
	return a.PrintTable([]string{"NAME", "KIND", "ACTS FOR", "CREATED", "EXPIRES", "USED"}, rows)
}

func ageOf(a *cli.App, t *time.Time) string {
	if t == nil || t.IsZero() {
		return a.AgeCell(nil)
	}
	return a.AgeCell(timestamppb.New(*t))
}

func keyRmCommand(a *cli.App, root *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove keys, and end their connections within a second or two",
		Example: "  caisson key rm ci",
		Args:    cli.AtLeastOne("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := rootOf(a, cmd.Context(), "key", *root)
			if err != nil {
				return err
			}
			return a.RemoveEach(slices.Clone(args), func(name string) (string, error) { return name, missing(keys.Remove(dir, name), dir) })
		},
	}
	a.OutputFlags(cmd)
	return cmd
}
