package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
)

// openEvents opens the stream of events, which everything else tells of itself.
func (d *daemon) openEvents(ctx context.Context, c config.Config) error {
	host, err := os.Hostname()
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, "caissond.events", err)
	}
	opened, err := d.openAudit(ctx, c)
	if err != nil {
		return err
	}
	d.metrics = newMetrics(d)
	if err := d.openTracing(c, host); err != nil {
		return err
	}
	observers := []func(*events.Event){d.metrics.Observe}
	if d.tracer != nil {
		observers = append(observers, d.tracer.Observe)
	}
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // never fails (crypto/rand)
	o := events.Options{Source: "//" + host + "/" + c.Instance(), Boot: hex.EncodeToString(boot[:]), Observers: observers, Log: d.log}
	if d.audit != nil {
		o.Recorder = d.audit
	}
	d.events = events.New(o)
	d.tellOpened(ctx, opened)
	d.tell(ctx, events.DaemonStarted, events.Data{Version: version, ConfigDigest: digestOf(c)})
	d.refused = &ratelog.Log[peer.Caller]{Record: func(c peer.Caller, skipped uint64) {
		d.tell(peer.NewContext(ctx, c), events.CallRefused, events.Data{Call: "connect", Code: sbxerr.Peer, Skipped: skipped})
	}}
	d.onStop(func(ctx context.Context) error {
		d.refused.Flush()
		d.tell(ctx, events.DaemonStopped, events.Data{Version: version})
		return nil
	})
	return nil
}

// openAudit opens the durable form of the stream, where that is on.
func (d *daemon) openAudit(ctx context.Context, c config.Config) (audit.Opened, error) {
	if !c.Audit.Enabled {
		d.log.Warn("no audit log is kept: audit.enabled is false")
		return audit.Opened{}, nil
	}
	log, opened, err := audit.Open(audit.Options{
		Dir: c.AuditDir(), Name: c.Instance(), Required: c.Audit.Required, MaxBytes: int64(c.Audit.MaxBytes), MaxAge: time.Duration(c.Audit.MaxAge), Log: d.log,
	})
	if err != nil {
		return audit.Opened{}, err
	}
	d.audit = log
	d.onStop(func(context.Context) error { return log.Close() })
	if err := d.startExports(ctx, c); err != nil {
		return audit.Opened{}, err
	}
	d.log.Info("audit log opened", "dir", c.AuditDir(), "public_key", opened.PublicKey)
	return opened, nil
}

// tellOpened tells of an audit log that is not as an earlier daemon left it.
func (d *daemon) tellOpened(ctx context.Context, o audit.Opened) {
	if o.Torn > 0 {
		d.log.Warn("cut off an audit record that an earlier daemon did not finish", "bytes", o.Torn)
		d.tell(ctx, events.AuditRecovered, events.Data{Bytes: o.Torn})
	}
	if o.Broken != nil {
		d.log.Error("the audit log is not what was signed", "err", o.Broken)
		var data events.Data
		data.Tell(o.Broken)
		d.tell(ctx, events.AuditBroken, data)
	}
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
