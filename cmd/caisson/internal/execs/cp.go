package execs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/localtree"
)

// archiveArg stands for a tar on standard input or output.
const archiveArg = "-"

func CpCommand(a *cli.App) *cobra.Command {
	var most string
	cmd := &cobra.Command{
		Use:   "cp SANDBOX:PATH LOCAL|- | cp LOCAL|- SANDBOX:PATH",
		Short: "Copy files between a sandbox and the host",
		Long: "Copy a file or directory between a live sandbox and the host. Use - to read a tar from\n" +
			"standard input or write one to standard output.\n\n" +
			"If the target is an existing directory, the source is copied into it. With a source that\n" +
			"ends in /. only its content is. Otherwise the copy becomes the target, and the parent of\n" +
			"the target must exist. PATH is absolute. Modes are kept, owners are not. The target\n" +
			"appears only when the copy is complete.",
		Example: "  caisson cp ./src build:/workspace\n  caisson cp build:/workspace/out.txt .\n  caisson cp build:/workspace - | tar t",
		Args:    cli.Exactly("SOURCE", "TARGET"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return completePlaces(a, cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parsePlace(args[0]), parsePlace(args[1])
			if err := checkPlaces(from, to, a.Output); err != nil {
				return err
			}
			p := cli.Parser{Flags: cmd.Flags()}
			atMost := p.Number("max-bytes", most, units.ParseSize)
			if atMost != nil && from.ref == "" {
				p.Refuse(cli.Usage("--max-bytes is for a copy out of a sandbox"))
			}
			if err := errors.Join(p.Errs...); err != nil {
				return err
			}
			return a.With(cmd.Context(), func(client *api.Client) error {
				c := copying{app: a, client: client, from: from, to: to, most: atMost}
				if from.ref != "" {
					return c.out(cmd.Context())
				}
				return c.in(cmd.Context())
			})
		},
	}
	cmd.Flags().StringVar(&most, "max-bytes", "", "copy out at most `SIZE`; holes and hard links count in full (default: the size of the sandbox)")
	a.OutputFlags(cmd)
	return cmd
}

// place is one side of a copy.
type place struct {
	ref  string // of a sandbox; empty is this host
	path string
}

// parsePlace reads SANDBOX:PATH or a path here. A name before a colon cannot
// hold a slash, so ./a:b is a file.
func parsePlace(arg string) place {
	ref, p, found := strings.Cut(arg, ":")
	if !found || ref == "" || strings.Contains(ref, "/") {
		return place{path: arg}
	}
	return place{ref, p}
}

func checkPlaces(from, to place, output cli.Format) error {
	switch {
	case from.ref == "" && to.ref == "":
		return cli.Usage("neither side is in a sandbox: name it as SANDBOX:PATH")
	case from.ref != "" && to.ref != "":
		return cli.Usage("both sides are in a sandbox: copy out first, then in")
	case from.path == "" || to.path == "":
		return cli.Usage("a path is empty")
	case to.ref == "" && to.path == archiveArg && output == cli.FormatJSON:
		return cli.Usage("standard output gets the archive: leave out --json")
	}
	return nil
}

// copying is one cp under way.
type copying struct {
	app      *cli.App
	client   *api.Client
	from, to place
	most     *int64 // bytes that come out; nil: what the sandbox can hold
}

// copiedView is what cp prints as JSON.
type copiedView struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	LeftOut int64 `json:"left_out"`
}

func (c copying) out(ctx context.Context) error {
	req := &caissonv1.CopyOutRequest{Ref: c.from.ref, Path: c.from.path}
	if c.most != nil {
		req.MaxBytes = *c.most
	}
	if c.to.path == archiveArg {
		if cli.OnTerminal(c.app.Stdout) {
			return cli.Usage("an archive is not for a terminal: redirect standard output to a file or a pipe")
		}
		left, err := c.client.CopyOut(ctx, req, c.app.Stdout)
		c.warn(left)
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var left api.LeftOut
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		var err error
		left, err = c.client.CopyOut(ctx, req, w)
		w.CloseWithError(err)
		done <- err
	}()
	counts, err := localtree.Unpack(r, c.to.path)
	r.CloseWithError(err) // whoever still writes must not wait; nil is io.ErrClosedPipe
	sent := <-done
	var why *interrupted
	switch {
	case err != nil && errors.As(context.Cause(ctx), &why):
		return &cli.ExitError{Code: cli.ExitSignal + int(why.signal), Err: sbxerr.Wrap(sbxerr.Canceled, "caisson.cp", why)}
	case err != nil:
		return localError(err, sent)
	}
	c.warn(left)
	return c.tell(copiedView{counts.Entries, counts.Bytes, left.Count})
}

// interruptible makes a signal that ends this process end the copy first, so
// that nothing of it is left here.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-ctx.Done():
		case s := <-caught:
			sig, _ := s.(syscall.Signal) // always one
			cancel(&interrupted{sig})
		}
	}()
	return ctx, func() { signal.Stop(caught); cancel(nil) }
}

// interrupted is why a copy was given up.
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string {
	return fmt.Sprintf("%s: what was copied is removed", unix.SignalName(i.signal))
}

// localError is the error of a copy of which both ends may have failed: the
// daemon's, unless that is only our own which came back.
func localError(local, remote error) error {
	if remote != nil && !errors.Is(remote, sbxerr.ClientIO) {
		return remote
	}
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.cp", fmt.Errorf("copy files here: %w", local))
}

func (c copying) warn(left api.LeftOut) {
	for _, name := range left.Names {
		c.app.Progress("left out " + name)
	}
	if more := left.Count - int64(len(left.Names)); more > 0 {
		c.app.Progress(fmt.Sprintf("left out %d more", more))
	}
}

func (c copying) tell(v copiedView) error {
	if c.app.Output == cli.FormatJSON {
		return c.app.PrintJSON(v)
	}
	return nil
}

func (c copying) in(ctx context.Context) error {
	if c.from.path == archiveArg {
		return c.send(ctx, c.to.path, c.app.Stdin, func() int64 { return 0 })
	}
	dir, name, err := c.target(ctx)
	if err != nil {
		return err
	}
	var skipped int64
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(localtree.Pack(c.from.path, name, w, func(p string) {
			skipped++
			c.app.Progress("left out " + p)
		}))
	}()
	end := func() int64 { r.Close(); <-done; return skipped }
	defer end()
	return c.send(ctx, dir, r, end)
}

// send copies the tar r in. leftOut, called after that, says what it lacks.
func (c copying) send(ctx context.Context, dir string, r io.Reader, leftOut func() int64) error {
	res, err := c.client.CopyIn(ctx, &caissonv1.CopyInHeader{Ref: c.to.ref, Path: dir}, r)
	if err != nil {
		return err
	}
	return c.tell(copiedView{res.Entries, res.Bytes, leftOut()})
}

// target returns the directory in the sandbox that gets the copy, and its name
// there.
func (c copying) target(ctx context.Context) (dir, name string, err error) {
	res, err := c.client.Stat(ctx, &caissonv1.StatRequest{Ref: c.to.ref, Path: c.to.path, Follow: true})
	absent := errors.Is(err, sbxerr.FileAbsent)
	if err != nil && !absent {
		return "", "", err
	}
	if !absent && res.GetType() == "directory" {
		return c.to.path, localName(c.from.path), nil
	}
	trimmed := strings.TrimRight(c.to.path, "/")
	if trimmed != c.to.path { // a directory was meant
		return "", "", sbxerr.New(sbxerr.FileAbsent, "caisson.cp", "there is no directory %q in the sandbox", c.to.path)
	}
	return path.Dir(trimmed), path.Base(trimmed), nil
}

// localName is the name that a copy of a local path gets in a directory.
func localName(local string) string {
	if local == "." || strings.HasSuffix(local, "/.") {
		return "."
	}
	full, err := filepath.Abs(local)
	if err != nil || full == "/" {
		return "."
	}
	return filepath.Base(full)
}

// completePlaces offers SANDBOX: and paths inside, and leaves files of the host to the shell.
func completePlaces(a *cli.App, cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	place := parsePlace(word)
	if place.ref == "" {
		names, _ := a.CompleteSandboxes(cmd, args, word)
		return cli.Each(names, func(name string) string { return name + ":" }), cobra.ShellCompDirectiveNoSpace
	}
	dir, _ := path.Split(place.path)
	names, directive := a.Complete(cmd, func(ctx context.Context, c *api.Client) ([]string, error) {
		r, err := c.ListDir(ctx, &caissonv1.ListDirRequest{Ref: place.ref, Path: cmp.Or(dir, "/")})
		return cli.Each(r.GetFiles(), func(f *caissonv1.FileInfo) string {
			name := place.ref + ":" + path.Join("/", dir, path.Base(f.Path))
			if f.Type == "directory" {
				name += "/"
			}
			return name
		}), err
	})
	return names, directive | cobra.ShellCompDirectiveNoSpace
}
