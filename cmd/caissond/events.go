package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/sbxerr"
)

// openEvents opens the stream of events, which everything else tells of itself.
func (d *daemon) openEvents(ctx context.Context, c config.Config) error {
	host, err := os.Hostname()
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "caissond.events", err)
	}
	settings, err := json.Marshal(c)
	if err != nil { // plain values
		return sbxerr.Wrap(sbxerr.Internal, "caissond.events", err)
	}
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // never fails (crypto/rand)
	d.events = events.New(events.Options{Source: "//" + host + "/" + c.Instance(), Boot: hex.EncodeToString(boot[:]), Log: d.log})
	digest := sha256.Sum256(settings)
	d.tell(ctx, events.DaemonStarted, events.Data{Version: version, ConfigDigest: "sha256:" + hex.EncodeToString(digest[:])})
	d.onStop(func(ctx context.Context) error {
		d.tell(ctx, events.DaemonStopped, events.Data{Version: version})
		return nil
	})
	return nil
}

// tell tells of something that is the host's own affair.
func (d *daemon) tell(ctx context.Context, t events.Type, data events.Data) {
	d.events.Emit(ctx, events.Event{Type: t, Scope: events.Scope{Host: true}, Data: data})
}

// engineChanged tells when the private engine is started and when it has ended.
func (d *daemon) engineChanged(ctx context.Context) func(bool, error) {
	return func(up bool, ended error) {
		if up {
			d.tell(ctx, events.EngineUp, events.Data{})
			return
		}
		var data events.Data
		data.Tell(sbxerr.Wrap(sbxerr.EngineDown, "caissond.engine", ended))
		d.tell(ctx, events.EngineDown, data)
	}
}
