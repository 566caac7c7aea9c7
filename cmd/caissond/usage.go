package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// usage refuses a command line.
func usage(format string, args ...any) error {
	return sbxerr.New(sbxerr.APIUsage, "caissond.usage", format, args...)
}

// flagError words what the flag library refuses, with the nearest right name.
func flagError(cmd *cobra.Command, err error) error {
	var absent *pflag.NotExistError
	if !errors.As(err, &absent) || absent.GetSpecifiedShortnames() != "" { // there are no short flags to come near
		return usage("%w", err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usage("there is no flag --%s%s; caissond --help shows all", absent.GetSpecifiedName(), didYouMean("--", absent.GetSpecifiedName(), names))
}

// noArgs refuses arguments. The first is most likely a misspelt command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usage("%q takes no argument %q%s", cmd.CommandPath(), args[0], didYouMean("", args[0], names))
}

func didYouMean(prefix, word string, names []string) string {
	near := sbxerr.Nearest(word, names)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s%s?", prefix, near)
}
