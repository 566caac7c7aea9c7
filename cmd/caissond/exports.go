package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/audit/export"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/doctor"
)

// startExports sends the audit log to its receivers, until the daemon has recorded its
// last event.
func (d *daemon) startExports(ctx context.Context, c config.Config) error {
	for i, x := range c.Audit.Export {
		r, err := receiver(x)
		if err != nil {
			return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.export", fmt.Errorf("audit.export[%d].%w", i, err))
		}
		d.exports = append(d.exports, export.New(export.Options{Dir: c.AuditDir(), Newest: d.audit.Newest, Receiver: r, Log: d.log}))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // they outlast the calls
	var running sync.WaitGroup
	for _, e := range d.exports {
		running.Go(func() { e.Run(ctx) })
	}
	d.onStop(func(context.Context) error {
		stop()
		running.Wait()
		return nil
	})
	return nil
}

func receiver(x config.Export) (export.Receiver, error) {
	host, err := os.Hostname()
	if err != nil {
		return export.Receiver{}, err
	}
	r := export.Receiver{Kind: export.Kind(x.To), Address: x.Address, Facility: x.FacilityNumber(), Hostname: cmp.Or(host, "-")}
	switch r.Kind {
	case export.Journald:
		r.Address = cmp.Or(x.Address, export.JournalSocket)
	case export.TLS:
		r.TLS, err = clientTLS(x.Address, x.CA)
	}
	return r, err
}

// clientTLS is for a receiver at HOST:PORT.
func clientTLS(address, ca string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil { // checked with the configuration
		return nil, fmt.Errorf("address: %w", err)
	}
	c, err := tlsOf(ca)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	c.ServerName = host
	return c, nil
}

// exportChecks tell of the receivers of the audit log.
func (h hostDoctor) exportChecks() (checks []runtime.Check) {
	for _, e := range h.exports {
		s := e.Status()
		c := runtime.Check{Name: "audit-export", Status: doctor.OK, Detail: fmt.Sprintf("%s: %d records wait", s.Receiver, s.Lag)}
		if s.Skipped > 0 {
			c.Status, c.Detail = doctor.Warn, fmt.Sprintf("%s, %d were removed before they were sent", c.Detail, s.Skipped)
			c.Remedy = "raise audit.max_bytes or audit.max_age"
		}
		if s.Away != nil {
			d, _ := sbxerr.Describe(sbxerr.ExportAway)
			c.Status, c.Code, c.Remedy = doctor.Warn, string(d.Code), d.Remedy
			c.Detail += ": " + s.Away.Error()
		}
		checks = append(checks, c)
	}
	return checks
}
