package main

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/webhook"
)

// startWebhooks delivers events, from that of the daemon's start on, until the daemon
// stops.
func (d *daemon) startWebhooks(ctx context.Context, c config.Config) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	d.onStop(func(context.Context) error {
		stop()
		running.Wait()
		return nil
	})
	for i, w := range c.Webhooks {
		o, err := webhookOptions(w)
		if err != nil {
			return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.webhooks", fmt.Errorf("webhooks[%d]: %w", i, err))
		}
		u, err := url.Parse(w.URL)
		if err != nil { // checked with the configuration
			return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.webhooks", err)
		}
		o.Log = d.log.With("host", u.Host) // the path may be a secret
		r, err := d.events.Read(events.Since{})
		if err != nil {
			return err
		}
		running.Go(func() { webhook.New(o).Run(ctx, r) })
	}
	return nil
}

func webhookOptions(w config.Webhook) (o webhook.Options, err error) {
	filter, err := events.ParseFilter(w.Filter)
	if err != nil {
		return o, fmt.Errorf("filter: %w", err)
	}
	file, err := readSecret(w.SecretFile)
	if err != nil {
		return o, fmt.Errorf("secret_file: %w", err)
	}
	secret, err := webhook.ParseSecret(file.Reveal())
	if err != nil {
		return o, fmt.Errorf("secret_file: %q: %w", w.SecretFile, err)
	}
	return webhook.Options{URL: w.URL, Secret: secret, Filter: filter}, nil
}
