package server

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// The calls of the health service of gRPC, which its clients and orchestrators know.
const (
	healthCheck = "/" + grpchealth.HealthV1ServiceName + "/Check"
	healthWatch = "/" + grpchealth.HealthV1ServiceName + "/Watch" // answers that it is not implemented
)

// health answers as Ping does: whether something can be run now. Every service is as
// healthy as the whole.
type health struct {
	host     System
	services []string
}

// Check implements [grpchealth.Checker].
func (h health) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if r.Service != "" && !slices.Contains(h.services, r.Service) {
		return nil, failAs(connect.CodeNotFound, sbxerr.New(sbxerr.APIUsage, "server.health", "there is no service %q", sbxerr.Clip(r.Service)))
	}
	if h.host.Ready(ctx) != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
