package egress

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
)

// Source opens where the value of a secret is. Only the gateway reads it.
type Source func() (*os.File, error)

// SetSecrets gives the gateway the value of each secret, and takes those away that are not
// among sources. Each process that is started later gets them as they are then. An error names
// the secrets without a value, and leaves all as they were.
func (g *Gateway) SetSecrets(ctx context.Context, sources map[string]Source) error {
	if err := g.acquire(ctx, "egress.secrets"); err != nil {
		return err
	}
	defer g.release()
	if l := g.current(); l != nil {
		if err := giveSecrets(l, sources, false); err != nil && !errors.Is(err, errGone) { // then the next process gets them
			return err
		}
	}
	g.secrets = maps.Clone(sources)
	return nil
}

// giveSecrets gives all secrets to a process, or some: those that have a value.
func giveSecrets(l *link, sources map[string]Source, some bool) error {
	r := control.Request{Op: control.Secrets, Some: some}
	var files []*os.File
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := sources[name]()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer f.Close() // it is read elsewhere
		r.Secrets, files = append(r.Secrets, name), append(files, f)
	}
	if some || len(errs) == 0 {
		errs = append(errs, l.ask(r, files...))
	}
	return sbxerr.Wrap(sbxerr.Secret, "egress.secrets", errors.Join(errs...))
}
