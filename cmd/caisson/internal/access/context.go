package access

import (
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/contexts"
)

// ContextCommand is the verb context.
func ContextCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Manage names for daemons on other hosts",
		Long:  "Manage names for daemons on other hosts. The context in use is that of all calls without --socket,\n--host or --context, and without the variables of these. The context default is the socket of this\nhost. Contexts name the files of keys and certificates, and hold none.",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(contextCreateCommand(a), contextUseCommand(a), contextLsCommand(a), contextRmCommand(a))
	return cmd
}

func contextCreateCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME --host URL",
		Short: "Give a daemon a name",
		Long: "Give a daemon a name. For tcp://, --key-file names the file with a key of caisson key create, --tls-ca\n" +
			"that with the certificates that sign the daemon's, and --tls-cert and --tls-key those of the client's\n" +
			"own certificate. The files are read with each call. The flags go with --host on any call, too, as do\n" +
			"CAISSON_KEY_FILE, CAISSON_KEY, CAISSON_TLS_CA, CAISSON_TLS_CERT and CAISSON_TLS_KEY.",
		Example: "  caisson context create build --host tcp://build.lan:7443 --key-file ci.key\n  caisson context create lab --host ssh://ann@lab.example.com",
		Args:    cli.Exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := contexts.CheckName(args[0]); err != nil {
				return err
			}
			c, err := a.GivenContext()
			if err != nil {
				return err
			}
			all, err := contexts.Read(a.LookupEnv)
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; ok {
				return sbxerr.WithRemedy(sbxerr.Exists, "caisson.context", errors.New("there is a context "+args[0]), "choose another name, or remove that one: caisson context rm "+args[0])
			}
			all.Contexts[args[0]] = c
			if err := contexts.Write(a.LookupEnv, all); err != nil {
				return err
			}
			return printName(a, args[0])
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func printName(a *cli.App, name string) error {
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(map[string]string{"name": name})
	}
	return a.PrintLine("%s", name)
}

func contextUseCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "use NAME",
		Short:   "Have later calls go to a daemon",
		Example: "  caisson context use build\n  caisson context use default",
		Args:    cli.Exactly("NAME"),

		ValidArgsFunction: contexts.Complete(a.LookupEnv),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := contexts.Read(a.LookupEnv)
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok && args[0] != contexts.Default {
				return contexts.Absent(args[0], all)
			}
			all.Current = args[0]
			if err := contexts.Write(a.LookupEnv, all); err != nil {
				return err
			}
			return printName(a, args[0])
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

// contextView is a context as it is listed.
type contextView struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func contextLsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List contexts; * marks the one in use",
		Example: "  caisson context ls",
		Args:    cli.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			all, err := contexts.Read(a.LookupEnv)
			if err != nil {
				return err
			}
			all.Contexts[contexts.Default] = contexts.Context{Host: "unix://" + a.Socket}
			if all.Current == "" {
				all.Current = contexts.Default
			}
			views := []contextView{}
			var rows [][]string
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				v := contextView{name, name == all.Current, all.Contexts[name]}
				views = append(views, v)
				mark := ""
				if v.Current {
					mark = "*"
				}
				rows = append(rows, []string{mark, name, v.Host, v.KeyFile, v.Cert})
			}
			if a.Output == cli.FormatJSON {
				return a.PrintJSON(views)
			}
			return a.PrintTable([]string{"", "NAME", "HOST", "KEY FILE", "CERTIFICATE"}, rows)
		},
	}
	a.OutputFlags(cmd)
	return cmd
}

func contextRmCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove contexts, but not the files that they name",
		Example: "  caisson context rm build",
		Args:    cli.AtLeastOne("NAME"),

		ValidArgsFunction: contexts.Complete(a.LookupEnv),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.RemoveEach(args, func(name string) (string, error) {
				all, err := contexts.Read(a.LookupEnv)
				if err != nil {
					return "", err
				}
				if _, ok := all.Contexts[name]; !ok {
					return "", contexts.Absent(name, all)
				}
				delete(all.Contexts, name)
				if all.Current == name {
					all.Current = ""
				}
				return name, contexts.Write(a.LookupEnv, all)
			})
		},
	}
	a.OutputFlags(cmd)
	return cmd
}
