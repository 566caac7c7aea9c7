package cli

import (
	"context"

	"github.com/caisson-run/caisson/api"
)

// With does something with a client of the daemon, and hangs up.
func (a *App) With(ctx context.Context, do func(*api.Client) error) error {
	client, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}

// Ask makes one call of the daemon and tells the answer: what most verbs are.
func Ask[Req, Res any](ctx context.Context, a *App, call func(*api.Client, context.Context, Req) (Res, error), req Req, tell func(Res) error) error {
	return a.With(ctx, func(client *api.Client) error {
		answer, err := call(client, ctx, req)
		if err != nil {
			return err
		}
		return tell(answer)
	})
}
