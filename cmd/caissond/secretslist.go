package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/secrets"
)

// secretService manages the secrets of routes, for operators.
type secretService struct {
	*daemon
	fleet *runtime.Manager
}

// List implements server.Secrets.
func (s secretService) List(ctx context.Context) ([]secrets.Secret, error) {
	defer s.fleet.Busy()()
	if err := runtime.CheckAdmin(ctx, s.fleet); err != nil {
		return nil, err
	}
	_ = s.gateway.Refresh(ctx, "") // without, the uses are those told before
	c := *s.config.Load()
	configured, kept := c.SecretSources(), s.keptBeside(c)
	names := slices.AppendSeq(slices.Collect(maps.Keys(configured)), maps.Keys(kept))
	list := []secrets.Secret{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if source, ok := kept[name]; ok {
			list = append(list, s.tell(ctx, c, name, source, &keptPrinted, true))
			continue
		}
		list = append(list, s.tell(ctx, c, name, configured[name], &printed, false))
	}
	return list, nil
}

// tell returns what may be told of a secret. Commands are not run for it: by has their last runs.
func (s secretService) tell(ctx context.Context, c config.Config, name string, source config.SecretSource, by *commandSecrets, kept bool) secrets.Secret {
	use := s.gateway.SecretUses()[name]
	var err error
	if source.Kind == config.SecretCommand {
		if err = by.failure(source.From); err != nil {
			err = refuseSecret(name, source, err)
		}
	}
	if err == nil {
		err = s.gateway.TrySecret(ctx, name, opened(name, source, by))
	}
	var refresh time.Duration
	if kept {
		refresh = time.Duration((*s.kept.Load())[name].Refresh)
	}
	return secrets.Secret{Name: name, Source: shownSource(source), Read: use.Read, Used: use.Used, Err: err, Routes: routesWith(c, name), Kept: kept, Refresh: refresh}
}

// shownSource is source without the arguments of a command, which may be secret.
func shownSource(source config.SecretSource) string {
	if source.Kind == config.SecretCommand {
		return source.Kind + ":" + programOf(source.From)
	}
	return source.Kind + ":" + source.From
}

// routesWith are the routes of c with a secret.
func routesWith(c config.Config, secret string) (routes []string) {
	for _, profile := range slices.Sorted(maps.Keys(c.Profiles)) {
		for _, label := range slices.Sorted(maps.Keys(c.Profiles[profile].Routes)) {
			if c.Profiles[profile].Routes[label].Uses(secret) {
				routes = append(routes, profile+"/"+label)
			}
		}
	}
	return routes
}
