package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// unknownCommand refuses a verb that does not exist before its flags are
// looked at: they belong to the verb that was meant.
func unknownCommand(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasSubCommands() {
		return nil
	}
	word := firstWord(cmd, rest)
	if word == "" || strings.HasPrefix(word, "__complete") || word == "help" {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	message := fmt.Sprintf("there is no command %q in %q", word, cmd.CommandPath())
	if here := verbsElsewhere[word]; here != "" && !cmd.HasParent() {
		return Usage("%s: use %s", message, here)
	}
	if near := Nearest(word, names); near != "" {
		return Usage("%s; did you mean %q?", message, near)
	}
	slices.Sort(names)
	return Usage("%s; there are: %s", message, strings.Join(names, ", "))
}

// firstWord is the first of args that is neither a flag nor a flag's value.
func firstWord(cmd *cobra.Command, args []string) string {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return ""
		case !strings.HasPrefix(arg, "-"):
			return arg
		case takesValue(cmd, arg) && len(args) > 0:
			args = args[1:]
		}
	}
	return ""
}

func takesValue(cmd *cobra.Command, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	if !long || strings.Contains(name, "=") {
		return false
	}
	f := cmd.Flag(name)
	return f != nil && f.NoOptDefVal == ""
}

// flagError words what the flag library refuses, with the nearest right name.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) || errors.Is(err, errWhole) {
		return err
	}
	var absent *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &absent):
		return unknownFlag(cmd, absent)
	case errors.As(err, &value) && errors.As(err, new(*strconv.NumError)):
		return Usage("--%s: %q is not a whole number", value.GetFlag().Name, value.GetValue())
	case errors.As(err, &value):
		return Usage("--%s %q: %v", value.GetFlag().Name, value.GetValue(), errors.Unwrap(value))
	case errors.As(err, &missing):
		return Usage("--%s needs a value: %s", missing.GetFlag().Name, strings.ReplaceAll(missing.GetFlag().Usage, "`", ""))
	}
	return Usage("%w", err)
}

func unknownFlag(cmd *cobra.Command, absent *pflag.NotExistError) error {
	name := absent.GetSpecifiedName()
	if here := flagsElsewhere[name]; here != "" {
		return Usage("%q has no flag %s: %s", cmd.CommandPath(), dashed(name), here)
	}
	if absent.GetSpecifiedShortnames() != "" {
		return Usage("%q has no flag -%s", cmd.CommandPath(), name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := Nearest(name, names); near != "" {
		return Usage("%q has no flag --%s; did you mean --%s?", cmd.CommandPath(), name, near)
	}
	return Usage("%q has no flag --%s", cmd.CommandPath(), name)
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// Exactly refuses any other number of arguments than those in the usage line.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usage("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return Usage("%q is one argument too many: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// AtLeastOne refuses a command line that names nothing.
func AtLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage("%s is missing: %s", name, cmd.UseLine())
		}
		return nil
	}
}

// AtMostOne refuses a second argument.
func AtMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Usage("%q is one argument too many: %s", args[1], cmd.UseLine())
	}
	return nil
}

// Nearest is what word is most likely a misspelling of, or "". Among equally
// near names it takes one that is as long: letters are swapped more often than
// lost.
func Nearest(word string, names []string) string {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(difference(a, word), difference(b, word))
	})
	return sbxerr.Nearest(word, names)
}

func difference(a, b string) int { return max(len(a)-len(b), len(b)-len(a)) }
