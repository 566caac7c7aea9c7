package server

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"golang.org/x/sync/singleflight"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The calls of the health service of gRPC, which its clients and orchestrators know.
const (
	healthCheck = "/" + grpchealth.HealthV1ServiceName + "/Check"
	healthWatch = "/" + grpchealth.HealthV1ServiceName + "/Watch"
)

// healthInterval is how often the state is looked at for watchers.
const healthInterval = time.Second

// health answers as Ping does: whether something can be run now. Every service is as
// healthy as the whole.
type health struct {
	host     System
	services []string
	flight   singleflight.Group
}

// Check implements [grpchealth.Checker].
func (h *health) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if r.Service != "" && !slices.Contains(h.services, r.Service) {
		return nil, failAs(connect.CodeNotFound, sbxerr.New(sbxerr.APIUsage, "server.health", "there is no service %q", sbxerr.Clip(r.Service)))
	}
	_, err, _ := h.flight.Do("", func() (any, error) { return nil, h.host.Ready(context.WithoutCancel(ctx)) })
	if err != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}

// Watch implements [grpchealth.Watcher]. All watchers check at the same instants, so that
// one question to the engine answers them all.
func (h *health) Watch(_ context.Context, _ *grpchealth.CheckRequest, changed func()) (stop func(), err error) {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		leaving := h.host.Leaving()
		for {
			next := time.Now().Truncate(healthInterval).Add(healthInterval)
			select {
			case <-ctx.Done():
				return
			case <-leaving:
				leaving = nil       // once
				h.flight.Forget("") // a question from before says nothing of it
			case <-time.After(time.Until(next)):
			}
			changed()
		}
	}()
	return stop, nil
}
