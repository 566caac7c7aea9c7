package main

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// refreshSecrets takes the secrets anew every so often until ctx ends. While that fails, the
// values before are used, and the first failure is logged.
func (d *daemon) refreshSecrets(ctx context.Context, every time.Duration) {
	if every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := d.takeSecrets(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			d.log.Warn("secrets not taken anew, the values before are used", "code", sbxerr.Of(err), "err", api.Explain(err), "remedy", sbxerr.RemedyOf(err))
		case err == nil && failed:
			d.log.Info("secrets are taken anew again")
		}
		failed = err != nil
	}
}

func (d *daemon) takeSecrets(ctx context.Context) error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	c := *d.config.Load()
	if err := printed.run(ctx, c); err != nil {
		return err
	}
	if err := d.gateway.SetSecrets(ctx, sourcesOf(c), d.keptSources(c)); err != nil {
		return err
	}
	d.takeKept(ctx, c, always)
	return nil
}
