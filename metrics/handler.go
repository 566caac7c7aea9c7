package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// maxScrapes bounds the scrapes at the same time.
const maxScrapes = 4

// Handler serves /metrics, /healthz and /readyz. Health is that of the process, which
// answers. Ready says why nothing can be run; nil if something can.
func (m *Metrics) Handler(ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(m.registry,
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), stateTimeout)
		defer cancel()
		tell(w, ready(ctx))
	})
	return mux
}

func tell(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err == nil {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, err)
}

// Gather returns what a scrape would.
func (m *Metrics) Gather() prometheus.Gatherer { return m.registry }

// Ready is why nothing can be run with the state s; nil if something can.
func (s State) Ready() error {
	var audit error
	if s.AuditBlocks {
		audit = sbxerr.New(sbxerr.AuditWrite, "metrics.ready", "audit: records are required and cannot be written")
	}
	var engine error
	if s.Engine != nil {
		engine = fmt.Errorf("engine: %w", s.Engine)
	}
	return errors.Join(engine, audit)
}
