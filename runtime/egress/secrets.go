package egress

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/usage"
)

// Source opens where the value of a secret is. Only the gateway reads it.
type Source func() (*os.File, error)

// SecretUse is what became of a secret since there is a Gateway. A zero time is never.
type SecretUse struct {
	Read time.Time // by a process
	Used time.Time // for a request that its upstream answered
}

// SetSecrets gives the gateway the value of each secret of sources, leaves it those of kept, and
// takes all others away. Each process that is started later gets both as they are then. An error
// names the secrets without a value, and leaves all as they were.
func (g *Gateway) SetSecrets(ctx context.Context, sources, kept map[string]Source) error {
	if err := g.acquire(ctx, "egress.secrets"); err != nil {
		return err
	}
	defer g.release()
	if l := g.current(); l != nil {
		if err := g.giveSecrets(l, sources, kept); err != nil && !errors.Is(err, errGone) { // then the next process gets them
			return err
		}
	}
	g.secrets = map[string]Source{}
	maps.Copy(g.secrets, kept)
	maps.Copy(g.secrets, sources)
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.uses, func(name string, _ SecretUse) bool { return g.secrets[name] == nil })
	return nil
}

// TrySecret says why a process could not have the value of a secret now, of which nothing is
// kept. While none serves, the source is only opened.
func (g *Gateway) TrySecret(ctx context.Context, name string, source Source) error {
	const op = "egress.secret"
	if err := g.acquire(ctx, op); err != nil {
		return err
	}
	defer g.release()
	if l := g.current(); l != nil {
		if err := trySecret(l, name, source); !errors.Is(err, errGone) {
			return sbxerr.Wrap(sbxerr.Secret, op, err)
		}
	}
	f, err := source()
	if err == nil {
		err = f.Close()
	}
	return sbxerr.Wrap(sbxerr.Secret, op, err)
}

// Start returns when a process serves.
func (g *Gateway) Start(ctx context.Context) error {
	const op = "egress.start"
	_, err := g.await(ctx, op)
	return sbxerr.Wrap(sbxerr.Gateway, op, err)
}

// SecretUses returns what became of each secret that was read.
func (g *Gateway) SecretUses() map[string]SecretUse {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.uses)
}

func trySecret(l *link, name string, source Source) error {
	f, err := source()
	if err != nil {
		return err
	}
	defer f.Close() // it is read elsewhere
	return l.ask(control.Request{Op: control.TrySecret, Secrets: []string{name}}, f)
}

// handOverSecrets gives a new process those secrets that have a value. Requests that need
// another one are refused.
func (g *Gateway) handOverSecrets(l *link) error {
	err := g.giveSecrets(l, g.secrets, nil)
	if err == nil || errors.Is(err, errGone) {
		return err
	}
	g.options.Log.Error("the gateway does not take a secret", "err", err)
	good := maps.Clone(g.secrets)
	maps.DeleteFunc(good, func(name string, source Source) bool { return trySecret(l, name, source) != nil })
	if err := g.giveSecrets(l, good, nil); errors.Is(err, errGone) {
		return err
	}
	return nil
}

// giveSecrets gives secrets to a process, which keeps of the others those of kept. An error
// leaves all that it has.
func (g *Gateway) giveSecrets(l *link, sources, kept map[string]Source) error {
	const op = "egress.secrets"
	r := control.Request{Op: control.Secrets}
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
	if err := errors.Join(errs...); err != nil {
		return sbxerr.Wrap(sbxerr.Secret, op, err)
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if sources[name] == nil {
			r.Kept = append(r.Kept, name)
		}
	}
	if err := l.ask(r, files...); err != nil {
		return sbxerr.Wrap(sbxerr.Secret, op, err)
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range r.Secrets {
		g.uses[name] = SecretUse{Read: now, Used: g.uses[name].Used}
	}
	return nil
}

// used notes the secret of a request that was answered.
func (g *Gateway) used(u usage.Use) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.uses[u.Credential]; ok && u.Code == "" {
		s.Used = time.Now()
		g.uses[u.Credential] = s
	}
}
