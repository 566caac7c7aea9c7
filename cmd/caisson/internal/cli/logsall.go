package cli

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
)

// logsOfAll shows the output of the sandboxes that f selects, one after the other. Those
// that were made for no command have none.
func (a *App) logsOfAll(cmd *cobra.Command, f *filterFlags, refs []string, req *caissonv1.LogsRequest, last string) error {
	for _, name := range []string{"follow", "exec", "offset", "stderr-offset", "output", "json", "format"} {
		if cmd.Flags().Changed(name) && f.given(cmd) {
			return Usage("--%s is for one sandbox: name it, and leave out the flags that select", name)
		}
	}
	lines := -1
	if last != "" && last != "all" {
		var err error
		if lines, err = tailLines(last); err != nil {
			return err
		}
	}
	list, err := a.selectedOf(cmd, f, refs)
	if err != nil {
		return err
	}
	return a.With(cmd.Context(), func(client *api.Client) error {
		var errs []error
		for _, s := range list {
			if len(s.Args) == 0 {
				continue
			}
			if err := a.logsWithName(cmd.Context(), client, s, req, lines); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

func (a *App) logsWithName(ctx context.Context, client *api.Client, s *caissonv1.Sandbox, of *caissonv1.LogsRequest, lines int) error {
	req := proto.CloneOf(of)
	req.Ref = s.Id
	prefix := []byte(printable(s.Name) + " | ")
	stdout, stderr := &prefixed{w: a.shown(a.Stdout), prefix: prefix}, &prefixed{w: a.shown(a.Stderr), prefix: prefix}
	out, errs := &shownStream{a, "stdout of " + s.Name, stdout}, &shownStream{a, "stderr of " + s.Name, stderr}
	var err error
	if lines >= 0 {
		err = a.tailLogs(ctx, client, req, lines, out, errs)
	} else {
		err = client.Logs(ctx, req, datedLines(out, req.Timestamps), datedLines(errs, req.Timestamps))
	}
	return errors.Join(err, ownOutput(stdout.end()), ownOutput(stderr.end()))
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
