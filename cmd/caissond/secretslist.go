package main

import (
	"context"
	"maps"
	"slices"

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
	sources, uses := c.SecretSources(), s.gateway.SecretUses()
	list := []secrets.Secret{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		source := sources[name]
		list = append(list, secrets.Secret{
			Name: name, Source: shownSource(source), Read: uses[name].Read, Used: uses[name].Used,
			Err: s.trySecret(ctx, name, source), Routes: routesWith(c, name),
		})
	}
	return list, nil
}

// trySecret says why a secret cannot be read now. That of a command is what its last run came to.
func (s secretService) trySecret(ctx context.Context, name string, source config.SecretSource) error {
	if source.Kind == config.SecretCommand {
		if err := printed.failure(source.From); err != nil {
			return refuseSecret(name, source, err)
		}
	}
	return s.gateway.TrySecret(ctx, name, opened(name, source))
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
			if c.Profiles[profile].Routes[label].Credential == secret {
				routes = append(routes, profile+"/"+label)
			}
		}
	}
	return routes
}
