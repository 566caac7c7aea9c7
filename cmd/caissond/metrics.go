package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	goruntime "runtime"
	"time"

	"golang.org/x/net/netutil"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/metrics"
	"github.com/caisson-run/caisson/owndir"
)

func newMetrics(d *daemon) *metrics.Metrics {
	return metrics.New(metrics.Build{Version: version, Commit: commit, GoVersion: goruntime.Version()}, d.state)
}

// enginePatience is how long the engine may take to answer.
const enginePatience = time.Second

// state is how the daemon does.
func (d *daemon) state(ctx context.Context) metrics.State {
	var s metrics.State
	if d.audit != nil {
		s.AuditWritten, s.AuditFailed = d.audit.Counts()
		s.AuditBlocks = d.audit.Blocks()
		s.AuditLag = map[string]uint64{}
		for _, e := range d.exports {
			state := e.Status()
			s.AuditLag[state.Receiver] = state.Lag
		}
	}
	m := d.manager.Load()
	if m == nil {
		s.Engine = sbxerr.New(sbxerr.EngineDown, "caissond.state", "the daemon is starting")
		return s
	}
	s.Counts = m.Counts()
	ctx, cancel := context.WithTimeoutCause(ctx, enginePatience, sbxerr.New(sbxerr.EngineDown, "caissond.state", "no answer within %s", enginePatience))
	defer cancel()
	s.Engine = d.engine.Ping(ctx)
	return s
}

// isReady is why nothing can be run now.
func (d *daemon) isReady(ctx context.Context) error { return d.state(ctx).Ready() }

// The bounds of those who ask for metrics.
const (
	metricsConnections = 64
	metricsTimeout     = 10 * time.Second
)

// serveMetrics serves metrics and health on a unix socket of root's, and on the address
// that the configuration names.
func (d *daemon) serveMetrics(c config.Config) error {
	socket, err := listen(c.MetricsSocket(), rootsDoor)
	if err != nil {
		return err
	}
	if err := socket.publish(); err != nil {
		return errors.Join(err, socket.abandon())
	}
	d.onStop(func(context.Context) error { return owndir.Unlink(c.MetricsSocket()) })
	listeners := []net.Listener{socket}
	if c.Metrics.Address != "" {
		l, err := net.Listen("tcp", c.Metrics.Address)
		if err != nil {
			return errors.Join(sbxerr.New(sbxerr.DaemonConf, "caissond.metrics", "metrics.address: %w", err), socket.Close())
		}
		listeners = append(listeners, l)
		d.log.Info("metrics and health are served", "address", l.Addr().String())
	}
	srv := &http.Server{
		Handler: d.metrics.Handler(d.isReady), ReadHeaderTimeout: metricsTimeout, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10,
	}
	for _, l := range listeners {
		go func() {
			if err := srv.Serve(netutil.LimitListener(l, metricsConnections)); !errors.Is(err, http.ErrServerClosed) {
				d.log.Error("serve metrics", "err", err)
			}
		}()
	}
	d.onStop(func(context.Context) error { return srv.Close() })
	return nil
}
