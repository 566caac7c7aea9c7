// Package metrics counts the stream of events for Prometheus, and tells how the daemon
// does when it is asked.
//
// Labels take their values from small sets: types, states, codes, configured pools. No
// label names a sandbox, a caller or a host, so the number of series is bounded.
package metrics

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
)

// seconds are the buckets of durations: from a warm start to a long command.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

// Build says which daemon it is.
type Build struct{ Version, Commit, GoVersion string }

// Metrics holds all counters. Its methods may be called at the same time.
type Metrics struct {
	registry *prometheus.Registry

	events   *prometheus.CounterVec
	creates  *prometheus.HistogramVec
	stages   *prometheus.HistogramVec
	removals prometheus.Histogram
	execs    *prometheus.HistogramVec
	output   *prometheus.CounterVec
	limits   *prometheus.CounterVec
	refusals *prometheus.CounterVec
	attempts *prometheus.CounterVec
	network  *prometheus.CounterVec
	files    *prometheus.CounterVec
	calls    *prometheus.HistogramVec
}

// New makes the counters. State tells how the daemon does; it is asked at each scrape.
func New(b Build, state func(context.Context) State) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		events:   counter("events_total", "Events by type.", "type"),
		creates:  histogram("sandbox_create_duration_seconds", "Creation of a sandbox.", "source"),
		stages:   histogram("sandbox_stage_duration_seconds", "Stages of the creation of a sandbox.", "stage"),
		removals: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "caisson", Name: "sandbox_removal_duration_seconds", Help: "Removal of a sandbox.", Buckets: seconds}),
		execs:    histogram("exec_duration_seconds", "Commands from start to end.", "reason", "exit"),
		output:   counter("output_bytes_total", "Bytes that commands wrote.", "stream"),
		limits:   counter("limit_hits_total", "Limits that sandboxes hit.", "limit"),
		refusals: counter("refused_calls_total", "Calls that were refused or failed, by code.", "code"),
		attempts: counter("network_attempts_total", "Attempts to connect, lookups.", "kind", "verdict"),
		network:  counter("network_bytes_total", "Bytes of connections that are over.", "direction"),
		files:    counter("file_bytes_total", "Bytes of files that callers copied.", "direction"),
		calls:    histogram("call_duration_seconds", "Calls of the API.", "call", "outcome"),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "caisson", Name: "build_info", Help: "The daemon's version.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go_version": b.GoVersion},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.events, m.creates, m.stages, m.removals, m.execs, m.output, m.limits, m.refusals, m.attempts, m.network, m.files, m.calls,
		build, &stateCollector{state: state}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, limit := range []string{"memory", "pids", "cpu", "kernel_memory", "time", "output"} {
		m.limits.WithLabelValues(limit) // an alert needs the zero before the first
	}
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "caisson", Name: name, Help: help}, labels)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "caisson", Name: name, Help: help, Buckets: seconds}, labels)
}

// Observe counts an event.
func (m *Metrics) Observe(e *events.Event) {
	m.events.WithLabelValues(string(e.Type)).Inc()
	d := &e.Data
	switch e.Type {
	case events.SandboxCreated:
		m.created(d)
	case events.SandboxRemoved:
		m.removals.Observe(d.Duration.Seconds())
	case events.ExecEnded:
		m.execs.WithLabelValues(d.Reason, exit(d)).Observe(d.Duration.Seconds())
		m.output.WithLabelValues("stdout").Add(float64(d.StdoutBytes))
		m.output.WithLabelValues("stderr").Add(float64(d.StderrBytes))
	case events.LimitHit:
		m.limits.WithLabelValues(d.Limit).Inc()
	case events.CallRefused:
		m.refusals.WithLabelValues(string(d.Code)).Add(float64(d.Skipped) + 1)
	case events.NetworkTried:
		m.attempts.WithLabelValues(d.Kind, d.Verdict).Add(float64(d.Skipped) + 1)
		m.network.WithLabelValues("sent").Add(float64(max(0, d.SentBytes)))
		m.network.WithLabelValues("received").Add(float64(max(0, d.ReceivedBytes)))
	case events.FileRead:
		m.files.WithLabelValues("out").Add(float64(d.Bytes))
	case events.FileWritten:
		m.files.WithLabelValues("in").Add(float64(d.Bytes))
	}
}

func (m *Metrics) created(d *events.Data) {
	source := "new"
	for _, s := range d.Stages {
		if s.Name == "pool" {
			source = "pool"
			continue
		}
		m.stages.WithLabelValues(s.Name).Observe(s.Duration.Seconds())
	}
	if d.Pooled {
		source = "pooled"
	}
	m.creates.WithLabelValues(source).Observe(d.Duration.Seconds())
}

// exit is the class of a command's end.
func exit(d *events.Data) string {
	switch {
	case d.Signal != 0:
		return "signal"
	case d.ExitCode != nil && *d.ExitCode == 0:
		return "success"
	}
	return "failure"
}

// Called counts a call of the API. The procedure is one that the API has, or empty.
func (m *Metrics) Called(procedure string, code sbxerr.Code, took time.Duration) {
	call, outcome := "unknown", "ok"
	if _, method, found := strings.Cut(strings.TrimPrefix(procedure, "/"), "/"); found {
		call = method
	}
	if code != "" {
		outcome = "error"
	}
	m.calls.WithLabelValues(call, outcome).Observe(took.Seconds())
}
