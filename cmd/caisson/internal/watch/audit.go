package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// defaultAuditDir is that of a daemon with the default root.
const defaultAuditDir = "/var/lib/caisson/audit"

func AuditCommand(a *cli.App) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read and verify the audit log of the host (root)",
		Long:  "Read and verify the audit log of the host. It holds every event of caisson events, durably\nand chained. The log is read as files, so no daemon is needed. It is for root alone.",
		Args:  cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:  cli.ShowHelp,
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "`DIR` of the log (default: that of the daemon)")
	cmd.AddCommand(auditTailCommand(a, &dir), auditQueryCommand(a, &dir), auditVerifyCommand(a, &dir))
	return cmd
}

// auditDir is the given directory, or that of the daemon, or the usual one.
func auditDir(a *cli.App, ctx context.Context, given string) (string, error) {
	if given != "" {
		dir, err := filepath.Abs(given)
		return dir, sbxerr.Wrap(sbxerr.ClientIO, "caisson.audit", err)
	}
	if err := a.RequireLocal("audit"); err != nil {
		return "", err
	}
	client, err := a.RunningClient()
	if err != nil {
		return "", err
	}
	defer client.Close()
	r, err := client.Version(ctx, &caissonv1.VersionRequest{})
	switch {
	case err == nil:
		return filepath.Join(r.Root, "audit"), nil
	case sbxerr.Of(err) == sbxerr.DaemonOff && a.Socket == a.AutoSocket:
		return defaultAuditDir, nil
	case sbxerr.Of(err) == sbxerr.DaemonOff:
		return "", sbxerr.WithRemedy(sbxerr.DaemonOff, "caisson.audit", err, "name the directory of the log: --dir ROOT/audit")
	}
	return "", err
}

func auditTailCommand(a *cli.App, dir *string) *cobra.Command {
	var lines uint64
	var follow bool
	cmd := &cobra.Command{
		Use:     "tail [flags]",
		Short:   "Show the newest records",
		Example: "  caisson audit tail\n  caisson audit tail -n 5 --json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := auditDir(a, cmd.Context(), *dir)
			if err != nil {
				return err
			}
			last, err := audit.Last(path)
			if err != nil {
				return err
			}
			from := last + 1 - min(last, lines)
			if follow {
				return audit.Follow(cmd.Context(), path, from, func(r audit.Record) error { return printRecord(a, r) })
			}
			return eachRecord(path, from, func(r audit.Record) error { return printRecord(a, r) })
		},
	}
	cmd.Flags().Uint64VarP(&lines, "lines", "n", 20, "number of `RECORDS`")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow until interrupted")
	a.OutputFlags(cmd)
	return cmd
}

func eachRecord(dir string, from uint64, do func(audit.Record) error) error {
	for r, err := range audit.Records(dir, from) {
		if err == nil {
			err = do(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// auditQuery chooses records. Empty fields choose all.
type auditQuery struct {
	since, until           time.Time
	sandbox, caller, kinds []string

	foundCaller, foundKinds map[string]bool // those of them that a record of the log has
}

func auditQueryCommand(a *cli.App, dir *string) *cobra.Command {
	q := auditQuery{foundCaller: map[string]bool{}, foundKinds: map[string]bool{}}
	var since, until string
	cmd := &cobra.Command{
		Use:     "query [flags]",
		Short:   "Show the records of a time, sandbox, caller or type",
		Example: "  caisson audit query --since 24h --type 'exec.*' --caller 'uid 1000'\n  caisson audit query --sandbox agent --type network.tried --json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.Parser{Flags: cmd.Flags()}
			q.since, q.until = p.Moment("since", since, a.Now()), p.Moment("until", until, a.Now())
			p.NotEmpty("since", "until")
			if err := errors.Join(p.Errs...); err != nil {
				return err
			}
			path, err := auditDir(a, cmd.Context(), *dir)
			if err != nil {
				return err
			}
			err = eachRecord(path, 0, func(r audit.Record) error {
				if takes, err := q.takes(r); err != nil || !takes {
					return err
				}
				return printRecord(a, r)
			})
			if err != nil {
				return err
			}
			sayAbsent(a, "type", q.kinds, q.foundKinds)
			sayAbsent(a, "caller", q.caller, q.foundCaller)
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&since, "since", "", "show records since a time or a duration ago: `TIME|DURATION`")
	f.StringVar(&until, "until", "", "show records before a time or a duration ago: `TIME|DURATION`")
	f.StringArrayVar(&q.sandbox, "sandbox", nil, "show records of a sandbox by name or ID: `SANDBOX` (repeatable)")
	f.StringArrayVar(&q.caller, "caller", nil, "show records of a caller, such as 'uid 1000': `CALLER` (repeatable)")
	f.StringArrayVar(&q.kinds, "type", nil, "show records of a type, such as 'exec.*': `TYPE` (repeatable)")
	a.OutputFlags(cmd)
	return cmd
}

// sayAbsent tells of values that no record has: most are misspelt.
func sayAbsent(a *cli.App, flag string, asked []string, found map[string]bool) {
	for _, value := range asked {
		if !found[value] {
			a.Progress(fmt.Sprintf("caisson: no record of the log has the %s %q", flag, value))
		}
	}
}

// takes decodes as much of a record as q asks for.
func (q *auditQuery) takes(r audit.Record) (bool, error) {
	var e struct {
		Time time.Time `json:"time"`
		Type string    `json:"type"`
		Data struct {
			SandboxID string `json:"sandbox_id"`
			Name      string `json:"name"`
			Caller    string `json:"caller"`
		} `json:"data"`
	}
	if err := json.Unmarshal(r.Line, &e); err != nil {
		return false, sbxerr.New(sbxerr.AuditBroken, "caisson.audit", "record %d is not JSON: %w", r.Seq, err)
	}
	kind := strings.TrimPrefix(e.Type, eventPrefix)
	noteMatches(q.foundKinds, q.kinds, kind, e.Type)
	noteMatches(q.foundCaller, q.caller, e.Data.Caller)
	return (q.since.IsZero() || !e.Time.Before(q.since)) && (q.until.IsZero() || e.Time.Before(q.until)) &&
		oneOf(q.sandbox, e.Data.SandboxID, e.Data.Name) && oneOf(q.caller, e.Data.Caller) && oneOf(q.kinds, kind, e.Type), nil
}

// oneOf reports whether one of the patterns matches one of the values; none matches all.
func oneOf(patterns []string, values ...string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return matchesOne(p, values) })
}

func matchesOne(pattern string, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		found, err := filepath.Match(pattern, v)
		return found && err == nil || pattern == v
	})
}

// noteMatches adds to found the patterns that match one of the values.
func noteMatches(found map[string]bool, patterns []string, values ...string) {
	for _, p := range patterns {
		found[p] = found[p] || matchesOne(p, values)
	}
}

func printRecord(a *cli.App, r audit.Record) error {
	if a.Output == cli.FormatJSON {
		_, err := a.Shown(a.Stdout).Write(append(bytes.Clone(r.Line), '\n'))
		return cli.OwnOutput(err)
	}
	var e caissonv1.Event
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.Line, &e); err != nil {
		return a.PrintLine("%s", cli.Printable(string(r.Line))) // as a daemon of another version wrote it
	}
	return printEvent(a, &e)
}

func auditVerifyCommand(a *cli.App, dir *string) *cobra.Command {
	var o audit.VerifyOptions
	cmd := &cobra.Command{
		Use:     "verify [flags]",
		Short:   "Check that no record was changed, removed, inserted or cut",
		Long:    "Check that no record was changed, removed, inserted or cut, and say where if one was.\nExit with 1 then. The key beside the log proves nothing to somebody who does not trust the\nhost: give the one that the daemon logged at its first start. An older copy of the log is whole too:\n--against finds it.",
		Example: "  caisson audit verify\n  caisson audit verify --key KEY --dir COPY\n  caisson audit verify --against HEAD --dir COPY",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := auditDir(a, cmd.Context(), *dir)
			if err != nil {
				return err
			}
			r, err := audit.Verify(path, o)
			if err != nil {
				return err
			}
			return printReport(a, r)
		},
	}
	cmd.Flags().StringVar(&o.Key, "key", "", "public `KEY` of the log (default: the file key.pub of the log)")
	cmd.Flags().StringVar(&o.Against, "against", "", "`HEAD` that the log must have: NUMBER:HASH of a record, as verify prints the last, or a copy of the file head")
	a.OutputFlags(cmd)
	return cmd
}

// auditReport is the JSON of a verification.
type auditReport struct {
	OK       bool     `json:"ok"`
	Records  uint64   `json:"records"`
	Segments int      `json:"segments"`
	Removed  uint64   `json:"removed"`  // by retention
	Last     uint64   `json:"last"`     // number of the newest record
	Hash     string   `json:"hash"`     // of the newest record
	Unsigned uint64   `json:"unsigned"` // newest records that no head is about yet
	Torn     int64    `json:"torn_bytes"`
	Problems []string `json:"problems"`
}

// printReport exits with 1 for a log that is not whole.
func printReport(a *cli.App, r *audit.Report) error {
	v := auditReport{
		OK: r.Err() == nil, Records: r.Records, Segments: r.Segments, Removed: r.Removed, Last: r.Last.Seq, Hash: r.Last.Hash.String(),
		Unsigned: r.Last.Seq - min(r.Last.Seq, r.Signed), Torn: r.Torn, Problems: cli.Each(r.Problems, audit.Problem.String),
	}
	if a.Output == cli.FormatJSON {
		if err := a.PrintJSON(v); err != nil {
			return err
		}
	} else if err := printReportText(a, v); err != nil {
		return err
	}
	if !v.OK {
		return cli.ExitStatus(1)
	}
	return nil
}

func printReportText(a *cli.App, v auditReport) error {
	for _, p := range v.Problems {
		if err := a.PrintLine("broken [%s]: %s", sbxerr.AuditBroken, cli.Printable(p)); err != nil {
			return err
		}
	}
	state := "whole"
	if !v.OK {
		state = "broken"
	}
	line := fmt.Sprintf("%s: %d records in %d segments, the last is %d:%s", state, v.Records, v.Segments, v.Last, v.Hash)
	if v.Removed > 0 {
		line += fmt.Sprintf("\nretention removed the first %d records", v.Removed)
	}
	if v.Unsigned > 0 {
		line += fmt.Sprintf("\n%d records of the last second before an end are not signed yet", v.Unsigned)
	}
	if v.Torn > 0 {
		line += fmt.Sprintf("\n%d bytes of a record were not finished: the next daemon cuts them off", v.Torn)
	}
	return a.PrintLine("%s", line)
}
