package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Parser reads the values of flags and gathers what is wrong with them.
type Parser struct {
	Flags *pflag.FlagSet
	Errs  []error
}

// NewParser reads the values of flags.
func NewParser(flags *pflag.FlagSet) *Parser { return &Parser{Flags: flags} }

// Refuse gathers err.
func (p *Parser) Refuse(err error) { p.Errs = append(p.Errs, err) }

// End returns all that is wrong, also with the request as a whole.
func (p *Parser) End(request proto.Message) error {
	if _, err := proto.Marshal(request); err != nil {
		p.Refuse(Usage("what is not UTF-8 cannot be sent: %w", err))
	}
	return errors.Join(p.Errs...)
}

// NotEmpty refuses flags that were given, but with no value: "" would mean
// the default, which is not what somebody who writes a flag wants.
func (p *Parser) NotEmpty(names ...string) {
	for _, name := range names {
		if p.Flags.Changed(name) && p.Flags.Lookup(name).Value.String() == "" {
			p.Refuse(Usage("--%s is empty: leave it out for the default", name))
		}
	}
}

// Number reads a flag that may be absent. What is given is never taken for
// absent, so that "" and 0 are refused.
func (p *Parser) Number(name, text string, parse func(string) (int64, error)) *int64 {
	if !p.Flags.Changed(name) {
		return nil
	}
	n, err := parse(text)
	if err != nil {
		p.Refuse(fmt.Errorf("--%s: %w", name, err))
		return nil
	}
	return &n
}

// Ports reads the ports of a flag. Which of them may be given, the daemon says.
func (p *Parser) Ports(name string, list []string) []uint32 {
	var out []uint32
	for _, text := range list {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			p.Refuse(Usage("--%s: %q is not a port, such as 8080", name, text))
			continue
		}
		out = append(out, uint32(n))
	}
	return out
}

func (p *Parser) Duration(name, text string) *durationpb.Duration {
	return p.DurationOr(name, text, DurationExamples)
}

// DurationOr is duration where something else may be said too, which remedy names.
func (p *Parser) DurationOr(name, text, remedy string) *durationpb.Duration {
	if !p.Flags.Changed(name) {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.Refuse(NoDuration(remedy, "--%s: %q is not a positive duration", name, text))
		return nil
	}
	return durationpb.New(d)
}

// Moment reads a point in time: of RFC 3339, in seconds since 1970, or a duration before now.
func (p *Parser) Moment(name, text string, now time.Time) time.Time {
	if text == "" {
		return time.Time{}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d)
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t
	}
	if d, err := time.ParseDuration(text + "s"); err == nil && d > 0 {
		return time.Unix(0, int64(d))
	}
	p.Refuse(Usage("--%s: %q is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h%s", name, text, nearMoment(text)))
	return time.Time{}
}

// nearMoment is the moment that may be meant.
func nearMoment(text string) string {
	for _, form := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(form, text); err == nil {
			return ": did you mean " + t.UTC().Format(time.RFC3339) + "?"
		}
	}
	number, unit := strings.TrimRight(text, " abcdefghijklmnopqrstuvwxyz"), strings.TrimLeft(text, "0123456789 ")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || unit == "" {
		return ""
	}
	switch {
	case unit[0] == 'd':
		return fmt.Sprintf(": did you mean %dh?", n*24)
	case unit[0] == 'w':
		return fmt.Sprintf(": did you mean %dh?", n*24*7)
	case strings.HasPrefix("hours", unit), strings.HasPrefix("minutes", unit), strings.HasPrefix("mins", unit), strings.HasPrefix("seconds", unit), strings.HasPrefix("secs", unit):
		return fmt.Sprintf(": did you mean %d%c?", n, unit[0])
	}
	return ""
}

const DurationExamples = "give a number and its unit, such as 500ms, 30s, 5m or 2h"

func NoDuration(remedy, format string, args ...any) error {
	return sbxerr.WithRemedy(sbxerr.Limits, "caisson.duration", fmt.Errorf(format, args...), remedy)
}

// Environment completes names without a value from caisson's own environment,
// so that a secret need not be on the command line. The values are not quoted
// in any refusal.
func (p *Parser) Environment(file string, list []string, lookupEnv func(string) (string, bool)) map[string]string {
	out := make(map[string]string, len(list))
	for _, entry := range append(p.envFile(file), list...) { // the last one counts, as everywhere
		name, value, given := strings.Cut(entry, "=")
		switch inherited, set := lookupEnv(name); {
		case name == "":
			p.Refuse(Usage("--env: an entry has no name, write K=V"))
		case given:
			out[name] = value
		case set:
			out[name] = inherited
		default:
			p.Refuse(Usage("--env: %q is not set here, write %s=VALUE", name, name))
		}
	}
	return out
}

// envFile reads the lines of a file. Empty ones, and those that begin with #, say nothing.
func (p *Parser) envFile(path string) []string {
	p.NotEmpty("env-file")
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		p.Refuse(sbxerr.Wrap(sbxerr.ClientIO, "caisson.env", fmt.Errorf("--env-file: %w", err)))
		return nil
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

func (p *Parser) Labels(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]string, len(list))
	for _, entry := range list {
		key, value, given := strings.Cut(entry, "=")
		if _, twice := out[key]; key == "" || !given || twice {
			p.Refuse(Usage("--label: %q is not a label K=V of its own", entry))
			continue
		}
		out[key] = value
	}
	return out
}
