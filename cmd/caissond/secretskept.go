package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/secret"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/secrets"
)

// maxKept bounds the file of references, in bytes.
const maxKept = 1 << 20

// keptPrinted holds what the commands of secrets printed that calls set.
var keptPrinted = commandSecrets{timeout: commandTimeout}

// keptSecret is where the value of a secret comes from that a call set.
type keptSecret struct {
	Source  string          `json:"source"`
	Refresh config.Duration `json:"refresh,omitempty"` // 0: on reload, and with secrets_refresh
}

func keptFile(root string) string { return filepath.Join(root, "secrets.json") }

// readKept reads the references to secrets that calls set. It holds no values.
func readKept(root string) (map[string]keptSecret, error) {
	kept := map[string]keptSecret{}
	if dir, err := filepath.EvalSymlinks(root); err == nil { // as the daemon does when it begins
		root = dir
	}
	data, err := owndir.ReadFile(keptFile(root), maxKept)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || !filepath.IsAbs(root) { // of which others say more
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	return kept, sbxerr.WithRemedy(sbxerr.StateDir, "caissond.secrets", err, "move the file away, then set its secrets again: caisson secret set")
}

func writeKept(root string, kept map[string]keptSecret) error {
	data, err := json.Marshal(kept)
	if err == nil {
		err = owndir.WriteFile(keptFile(root), data)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "caissond.secrets", err)
}

// keptBeside are the kept secrets that c has none of that name of.
func (d *daemon) keptBeside(c config.Config) map[string]config.SecretSource {
	sources := map[string]config.SecretSource{}
	for name, k := range *d.kept.Load() {
		s, err := config.ParseSecret(name, k.Source)
		if _, configured := c.Secrets[name]; err == nil && !configured {
			sources[name] = s
		}
	}
	return sources
}

func (d *daemon) keptSources(c config.Config) map[string]egress.Source {
	sources := map[string]egress.Source{}
	for name, s := range d.keptBeside(c) {
		sources[name] = opened(name, s, &keptPrinted)
	}
	return sources
}

// runKept runs the commands of kept secrets, all at once.
func (d *daemon) runKept(ctx context.Context, kept map[string]config.SecretSource) {
	var running sync.WaitGroup
	for name, s := range kept {
		if s.Kind == config.SecretCommand {
			running.Go(func() {
				f, err := runForSecret(ctx, s.From, commandTimeout)
				keptPrinted.replace(s.From, f, err)
				if err != nil {
					d.warnSecret(refuseSecret(name, s, err))
				}
			})
		}
	}
	running.Wait()
}

// takeKept takes the values of kept secrets anew. One that has none keeps the value before.
func (d *daemon) takeKept(ctx context.Context, c config.Config, taken func(name string) bool) {
	kept := d.keptBeside(c)
	maps.DeleteFunc(kept, func(name string, _ config.SecretSource) bool { return !taken(name) })
	d.runKept(ctx, kept)
	all := d.allSources(c)
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if err := d.gateway.SetSecrets(ctx, map[string]egress.Source{name: all[name]}, all); err != nil {
			d.warnSecret(err)
		}
	}
}

func always(string) bool { return true }

// refreshKept takes kept secrets anew after the time of each, until ctx ends.
func (d *daemon) refreshKept(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		kept, due := *d.kept.Load(), map[string]bool{}
		maps.DeleteFunc(last, func(name string, _ time.Time) bool { return kept[name].Refresh == 0 })
		for name, k := range kept {
			if at, ok := last[name]; k.Refresh > 0 && (!ok || time.Since(at) >= time.Duration(k.Refresh)) {
				due[name], last[name] = ok, time.Now() // it was just set
			}
		}
		if slices.Contains(slices.Collect(maps.Values(due)), true) {
			d.reloading.Lock()
			d.takeKept(ctx, *d.config.Load(), func(name string) bool { return due[name] })
			d.reloading.Unlock()
		}
	}
}

func (d *daemon) warnSecret(err error) {
	d.log.Warn("a secret is not taken, the value before is used", "code", sbxerr.Of(err), "err", api.Explain(err))
}

// leastRefresh is how often a value may be taken.
const leastRefresh = time.Second

// Set implements server.Secrets.
func (s secretService) Set(ctx context.Context, name, reference string, refresh time.Duration) (secrets.Secret, error) {
	const op = "caissond.secret"
	defer s.fleet.Busy()()
	if err := errors.Join(runtime.CheckAdmin(ctx, s.fleet), peer.RequireLocal(ctx, "the source of a secret")); err != nil {
		return secrets.Secret{}, err
	}
	source, err := config.ParseSecret(name, reference)
	if refresh != 0 && refresh < leastRefresh {
		err = errors.Join(err, fmt.Errorf("refresh: %s is less than %s, and not 0", refresh, leastRefresh))
	}
	if err := errors.Join(secret.CheckName(name), err); err != nil {
		return secrets.Secret{}, sbxerr.WithRemedy(sbxerr.Config, op, err, "give a name of letters, digits, dots, hyphens and underscores, and file:PATH of root's, credential:NAME of systemd, or command:PROGRAM")
	}
	s.reloading.Lock()
	defer s.reloading.Unlock()
	c := *s.config.Load()
	if _, ok := c.Secrets[name]; ok {
		return secrets.Secret{}, sbxerr.WithRemedy(sbxerr.Exists, op, fmt.Errorf("the configuration has the secret %q", name), "change it there, then caisson config reload; or choose another name")
	}
	before := *s.kept.Load()
	next := maps.Clone(before)
	next[name] = keptSecret{reference, config.Duration(refresh)}
	if len(next)+len(c.Secrets) > control.MaxSecrets {
		return secrets.Secret{}, sbxerr.WithRemedy(sbxerr.Config, op, fmt.Errorf("there are %d secrets already", control.MaxSecrets), "remove one that is not used: caisson secret rm")
	}
	install, err := s.try(ctx, name, source)
	if err != nil {
		return secrets.Secret{}, err
	}
	if err := s.keep(c, next); err != nil {
		return secrets.Secret{}, err
	}
	install()
	value := map[string]egress.Source{name: opened(name, source, &keptPrinted)}
	if err := s.gateway.SetSecrets(context.WithoutCancel(ctx), value, s.sourcesBeside(c, name)); err != nil {
		return secrets.Secret{}, errors.Join(err, s.keep(c, before))
	}
	s.log.Info("secret set", "name", name, "source", shownSource(source))
	err = s.confirm(ctx, events.SecretSet, events.Data{Credential: name, Reason: shownSource(source)})
	return s.tell(ctx, c, name, source, &keptPrinted, true), err
}

// try reads a secret once, and keeps nothing of it until install is called.
func (s secretService) try(ctx context.Context, name string, source config.SecretSource) (install func(), err error) {
	if err := s.gateway.Start(ctx); err != nil {
		return nil, err
	}
	if source.Kind != config.SecretCommand {
		return func() {}, s.gateway.TrySecret(ctx, name, opened(name, source, &keptPrinted))
	}
	f, err := runForSecret(ctx, source.From, commandTimeout)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Secret, "caissond.secret", refuseSecret(name, source, err))
	}
	again := func() (*os.File, error) { return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) }
	if err := s.gateway.TrySecret(ctx, name, again); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { keptPrinted.replace(source.From, f, nil) }, nil
}

// keep has the daemon, and the next one, know the secrets next.
func (s secretService) keep(c config.Config, next map[string]keptSecret) error {
	if err := writeKept(c.Root, next); err != nil {
		return err
	}
	s.kept.Store(&next)
	lines := map[string]bool{}
	for _, k := range next {
		lines[strings.TrimPrefix(k.Source, config.SecretCommand+":")] = true
	}
	keptPrinted.forget(func(line string) bool { return !lines[line] })
	c.KnowSecrets(maps.Keys(next))
	s.config.Store(&c)
	return nil
}

func (d *daemon) allSources(c config.Config) map[string]egress.Source {
	all := sourcesOf(c)
	maps.Copy(all, d.keptSources(c))
	return all
}

// sourcesBeside are all secrets but one.
func (s secretService) sourcesBeside(c config.Config, name string) map[string]egress.Source {
	all := s.allSources(c)
	delete(all, name)
	return all
}

// Remove implements server.Secrets.
func (s secretService) Remove(ctx context.Context, name string) error {
	const op = "caissond.secret"
	defer s.fleet.Busy()()
	if err := runtime.CheckAdmin(ctx, s.fleet); err != nil {
		return err
	}
	s.reloading.Lock()
	defer s.reloading.Unlock()
	c := *s.config.Load()
	_, configured := c.Secrets[name]
	next := maps.Clone(*s.kept.Load())
	_, ok := next[name]
	switch routes := routesWith(c, name); {
	case !ok && configured:
		return sbxerr.WithRemedy(sbxerr.Exists, op, fmt.Errorf("the configuration has the secret %q", name), "remove it there, then caisson config reload")
	case !ok:
		return sbxerr.New(sbxerr.SecretNotFound, op, "there is no secret %q", sbxerr.Clip(name))
	case len(routes) > 0 && !configured:
		return sbxerr.New(sbxerr.SecretInUse, op, "the secret %q is used by the routes %s", name, strings.Join(routes, ", "))
	}
	delete(next, name)
	if err := s.keep(c, next); err != nil {
		return err
	}
	s.log.Info("secret removed", "name", name)
	var err error
	if !configured {
		err = s.gateway.SetSecrets(context.WithoutCancel(ctx), nil, s.sourcesBeside(c, name))
	}
	return errors.Join(err, s.confirm(ctx, events.SecretRemoved, events.Data{Credential: name}))
}

// confirm tells of a change of a secret before its caller hears of it.
func (s secretService) confirm(ctx context.Context, t events.Type, d events.Data) error {
	return s.events.Confirm(ctx, events.Event{Type: t, Scope: events.Scope{Host: true}, Data: d})
}
