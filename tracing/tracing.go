// Package tracing sends OpenTelemetry spans of the calls of the API, and of what they lead
// to. It measures nothing itself: calls and events say what took how long.
//
// Spans wait in a bounded queue. A receiver that is away or hangs costs spans, and no call
// any time.
package tracing

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
)

// The bounds of what waits, and of one attempt to send it.
const (
	maxWaiting  = 4096 // spans; more are dropped
	sendEvery   = time.Second
	sendTimeout = 10 * time.Second
)

// Options is what a Tracer is made of.
type Options struct {
	Endpoint string // URL of a receiver of OTLP by HTTP
	TLS      *tls.Config
	Headers  map[string]string
	Version  string // of the daemon
	Instance string
	Host     string
	Log      *slog.Logger
}

// Tracer makes spans and sends them. Its methods may be called at the same time.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracer. It connects with nobody yet.
func New(o Options) (*Tracer, error) {
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: o.TLS, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx := context.Background()
	exporter, err := otlptrace.New(ctx, otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(o.Endpoint), otlptracehttp.WithHTTPClient(client), otlptracehttp.WithHeaders(o.Headers), otlptracehttp.WithTimeout(sendTimeout)))
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.DaemonConf, "tracing.new", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&reporter{SpanExporter: exporter, log: o.Log}, sdktrace.WithMaxQueueSize(maxWaiting), sdktrace.WithBatchTimeout(sendEvery), sdktrace.WithExportTimeout(sendTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithIDGenerator(chosenIDs{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "caissond"), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance), attribute.String("host.name", o.Host))),
	)
	return &Tracer{provider, provider.Tracer("github.com/caisson-run/caisson")}, nil
}

// Close sends what waits, as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// reporter logs when the receiver begins to fail and when it takes spans again.
type reporter struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements [sdktrace.SpanExporter].
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch was := r.failed.Swap(err != nil); {
	case err != nil && !was:
		r.log.Warn("tracing: the receiver fails, spans are dropped", "err", err)
	case err == nil && was:
		r.log.Info("tracing: the receiver takes spans again")
	}
	return nil
}

// Call is one call that is over.
type Call struct {
	Procedure   string // of the API, such as /caisson.v1.ExecService/Start
	Code        string // of a failure
	Begun       time.Time
	Took        time.Duration
	Traceparent string // of the call (W3C Trace Context, section 3.2)
	Parent      string // span of the caller, 16 hex digits; empty for none
	RequestID   string
	Sandbox     string
	Exec        string
}

// Called makes the span of a call. It has the ID that c.Traceparent names.
func (t *Tracer) Called(c Call) {
	own, ok := parse(c.Traceparent)
	if !ok || !own.IsSampled() {
		return
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(c.Procedure, "/"), "/")
	ctx := context.WithValue(context.Background(), chosenKey{}, own)
	if parent, err := trace.SpanIDFromHex(c.Parent); err == nil {
		ctx = trace.ContextWithRemoteSpanContext(ctx, own.WithSpanID(parent).WithRemote(true))
	}
	_, span := t.tracer.Start(ctx, service+"/"+method, trace.WithTimestamp(c.Begun), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(known(
		"rpc.system", "connect_rpc", "rpc.service", service, "rpc.method", method,
		"caisson.request_id", c.RequestID, "caisson.sandbox", c.Sandbox, "caisson.exec", c.Exec, "error.type", c.Code)...))
	if c.Code != "" {
		span.SetStatus(codes.Error, c.Code)
	}
	span.End(trace.WithTimestamp(c.Begun.Add(c.Took)))
}

// Observe makes spans of the events that tell how long something took: a creation with its
// stages, a command, a removal.
func (t *Tracer) Observe(e *events.Event) {
	name := map[events.Type]string{events.SandboxCreated: "create", events.ExecEnded: "exec", events.SandboxRemoved: "remove"}[e.Type]
	parent, ok := parse(e.Trace)
	if name == "" || !ok || !parent.IsSampled() {
		return
	}
	d := &e.Data
	begun := e.Time.Add(-time.Duration(d.Duration))
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(context.Background(), parent), name, trace.WithTimestamp(begun), trace.WithAttributes(known(
		"caisson.sandbox", d.SandboxID, "caisson.exec", d.ExecID, "caisson.profile", d.Profile, "caisson.image", d.Image, "caisson.reason", d.Reason, "error.type", string(d.Code))...))
	if d.ExitCode != nil {
		span.SetAttributes(attribute.Int("caisson.exit_code", *d.ExitCode))
	}
	if d.Code != "" {
		span.SetStatus(codes.Error, string(d.Code))
	}
	for _, s := range d.Stages { // one follows the other
		_, stage := t.tracer.Start(ctx, "stage "+s.Name, trace.WithTimestamp(begun))
		begun = begun.Add(time.Duration(s.Duration))
		stage.End(trace.WithTimestamp(begun))
	}
	span.End(trace.WithTimestamp(e.Time))
}

// known returns attributes of pairs of key and value, without those that have no value.
func known(pairs ...string) (list []attribute.KeyValue) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return list
}

// parse reads a traceparent of the server's.
func parse(traceparent string) (trace.SpanContext, bool) {
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 {
		return trace.SpanContext{}, false
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}, false
	}
	spanID, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := hex.DecodeString(parts[3])
	if err != nil || len(flags) != 1 {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0])}), true
}
