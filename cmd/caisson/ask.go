package main

import (
	"context"

	"github.com/caisson-run/caisson/api"
)

// with does something with a client of the daemon, and hangs up.
func (a *app) with(ctx context.Context, do func(*api.Client) error) error {
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

// ask makes one call of the daemon and tells the answer: what most verbs are.
func ask[Req, Res any](ctx context.Context, a *app, call func(*api.Client, context.Context, Req) (Res, error), req Req, tell func(Res) error) error {
	return a.with(ctx, func(client *api.Client) error {
		answer, err := call(client, ctx, req)
		if err != nil {
			return err
		}
		return tell(answer)
	})
}
