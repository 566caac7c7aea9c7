package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/spend"
)

// State is how the daemon does.
type State struct {
	runtime.Counts
	Engine       error  // why the engine does not serve; nil if it does
	AuditWritten uint64 // records since the start
	AuditFailed  uint64 // records that could not be written
	AuditBlocks  bool   // nothing runs, as records are required and cannot be written
	// AuditLag is the number of records that each receiver of the audit log still lacks.
	AuditLag map[string]uint64
}

// stateTimeout bounds one look at the state.
const stateTimeout = 2 * time.Second

var (
	sandboxesDesc = desc("sandboxes", "Sandboxes by state; pooled ones wait for their request.", "state")
	commandsDesc  = desc("execs_running", "Commands that run.")
	queuedDesc    = desc("create_queue_length", "Requests that wait for their turn to make a sandbox.")
	orphanedDesc  = desc("orphaned_sandboxes", "Sandboxes that the daemon does not know, by the last look for them.")
	skippedDesc   = desc("quarantined", "Leftovers that could not be removed, and files that the daemon did not make.")
	throttledDesc = desc("cpu_throttled_seconds_total", "Time that limits of CPU held sandboxes back, summed over CPUs.")
	engineDesc    = desc("engine_up", "1 if containerd serves.")
	auditDesc     = desc("audit_records_total", "Audit records that were written.")
	auditLostDesc = desc("audit_failures_total", "Audit records that could not be written.")
	auditLagDesc  = desc("audit_export_lag_records", "Audit records that a receiver of audit.export did not get yet.", "receiver")
	requestsDesc  = desc("route_requests_total", "Requests by routes.", "route")
	tokensDesc    = desc("route_tokens_total", "Tokens of models that answered requests by routes.", "route", "direction")
	costDesc      = desc("route_cost_total", "Cost of those tokens, in the unit of prices.", "route")
	readyDesc     = desc("pool_ready", "Ready sandboxes of a pool.", "profile", "image")
	targetDesc    = desc("pool_target", "Ready sandboxes that a pool wants at the moment.", "profile", "image")
	hitsDesc      = desc("pool_hits_total", "Requests that got a ready sandbox.", "profile", "image")
	missesDesc    = desc("pool_misses_total", "Requests that found no ready sandbox.", "profile", "image")
	failuresDesc  = desc("pool_failures_total", "Ready sandboxes that could not be made.", "profile", "image")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("caisson_"+name, help, labels, nil)
}

// stateCollector looks at the state at each scrape.
type stateCollector struct {
	state func(context.Context) State
}

// Describe implements [prometheus.Collector].
func (*stateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		sandboxesDesc, commandsDesc, queuedDesc, orphanedDesc, skippedDesc, throttledDesc, engineDesc, auditDesc, auditLostDesc, auditLagDesc,
		requestsDesc, tokensDesc, costDesc, readyDesc, targetDesc, hitsDesc, missesDesc, failuresDesc,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *stateCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	s := c.state(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, state := range runtime.States() {
		gauge(sandboxesDesc, float64(s.Sandboxes[state]), string(state))
	}
	gauge(sandboxesDesc, float64(s.Pooled), "pooled")
	gauge(commandsDesc, float64(s.Execs))
	gauge(queuedDesc, float64(s.Queued))
	gauge(orphanedDesc, float64(s.Orphaned))
	gauge(skippedDesc, float64(s.Skipped))
	count(throttledDesc, s.Throttled.Seconds())
	up := 1.0
	if s.Engine != nil {
		up = 0
	}
	gauge(engineDesc, up)
	count(auditDesc, float64(s.AuditWritten))
	count(auditLostDesc, float64(s.AuditFailed))
	for receiver, lag := range s.AuditLag {
		gauge(auditLagDesc, float64(lag), receiver)
	}
	for route, a := range s.Routes {
		count(requestsDesc, float64(a.Requests), route)
		count(tokensDesc, float64(a.Tokens.Input), route, "in")
		count(tokensDesc, float64(a.Tokens.Output), route, "out")
		count(costDesc, float64(a.Micros)/spend.Micro, route)
	}
	for _, p := range s.Pools {
		gauge(readyDesc, float64(p.Ready), p.Profile, p.Image)
		gauge(targetDesc, float64(p.Target), p.Profile, p.Image)
		count(hitsDesc, float64(p.Hits), p.Profile, p.Image)
		count(missesDesc, float64(p.Misses), p.Profile, p.Image)
		count(failuresDesc, float64(p.Failures), p.Profile, p.Image)
	}
}
