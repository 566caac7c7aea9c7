package tracing

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

type chosenKey struct{}

// chosenIDs gives a span the IDs that its context names, and others random ones: the span
// of a call has the ID that the daemon's log and the answer have.
type chosenIDs struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (g chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if chosen, ok := ctx.Value(chosenKey{}).(trace.SpanContext); ok {
		return chosen.TraceID(), chosen.SpanID()
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements [sdktrace.IDGenerator].
func (chosenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if chosen, ok := ctx.Value(chosenKey{}).(trace.SpanContext); ok {
		return chosen.SpanID()
	}
	var id trace.SpanID
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id
}
