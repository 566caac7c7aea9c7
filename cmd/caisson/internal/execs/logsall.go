package execs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// logsOfAll shows the output of the sandboxes that f selects, one after the other. Those
// that were made for no command have none.
func logsOfAll(a *cli.App, cmd *cobra.Command, f *cli.FilterFlags, refs []string, req *caissonv1.LogsRequest, last string) error {
	for _, name := range []string{"follow", "exec", "offset", "stderr-offset", "output", "json", "format"} {
		if cmd.Flags().Changed(name) && f.Given(cmd) {
			return cli.Usage("--%s is for one sandbox: name it, and leave out the flags that select", name)
		}
	}
	lines := -1
	if last != "" && last != "all" {
		var err error
		if lines, err = tailLines(last); err != nil {
			return err
		}
	}
	list, err := a.SelectedOf(cmd, f, refs)
	if err != nil {
		return err
	}
	return a.With(cmd.Context(), func(client *api.Client) error {
		var errs []error
		for _, s := range list {
			if len(s.Args) == 0 {
				continue
			}
			if err := logsWithName(a, cmd.Context(), client, s, req, lines); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

func logsWithName(a *cli.App, ctx context.Context, client *api.Client, s *caissonv1.Sandbox, of *caissonv1.LogsRequest, lines int) error {
	req := proto.CloneOf(of)
	req.Ref = s.Id
	prefix := []byte(cli.Printable(s.Name) + " | ")
	stdout, stderr := &prefixed{w: a.Shown(a.Stdout), prefix: prefix}, &prefixed{w: a.Shown(a.Stderr), prefix: prefix}
	out, errs := &shownStream{a, "stdout of " + s.Name, stdout}, &shownStream{a, "stderr of " + s.Name, stderr}
	var err error
	if lines >= 0 {
		err = tailLogs(a, ctx, client, req, lines, out, errs)
	} else {
		err = client.Logs(ctx, req, datedLines(out, req.Timestamps), datedLines(errs, req.Timestamps))
	}
	return errors.Join(err, cli.OwnOutput(stdout.end()), cli.OwnOutput(stderr.end()))
}

// prefixed begins each line with a prefix.
type prefixed struct {
	w       io.Writer
	prefix  []byte
	midLine bool
}

func (p *prefixed) Write(text []byte) (int, error) {
	var out []byte
	for line := range bytes.Lines(text) {
		if !p.midLine {
			out = append(out, p.prefix...)
		}
		out = append(out, line...)
		p.midLine = line[len(line)-1] != '\n'
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// end ends a last line that has no end of its own.
func (p *prefixed) end() error {
	if !p.midLine {
		return nil
	}
	p.midLine = false
	_, err := p.w.Write([]byte("\n"))
	return err
}
