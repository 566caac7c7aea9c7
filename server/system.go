package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
)

// system serves SystemService.
type system struct{ host System }

func (s system) Version(ctx context.Context, _ *connect.Request[caissonv1.VersionRequest]) (*connect.Response[caissonv1.VersionResponse], error) {
	versions, err := s.host.Versions(ctx)
	return reply(versionsPB(versions), err)
}

// Doctor reports ok while no check failed; a warning is not a failure.
func (s system) Doctor(ctx context.Context, _ *connect.Request[caissonv1.DoctorRequest]) (*connect.Response[caissonv1.DoctorResponse], error) {
	checks, err := s.host.Doctor(ctx)
	return reply(&caissonv1.DoctorResponse{Checks: each(checks, checkPB), Ok: healthy(checks)}, err)
}

func healthy(checks []runtime.Check) bool {
	for _, c := range checks {
		if c.Status == "fail" {
			return false
		}
	}
	return true
}

func (s system) Capabilities(ctx context.Context, _ *connect.Request[caissonv1.CapabilitiesRequest]) (*connect.Response[caissonv1.CapabilitiesResponse], error) {
	capabilities, err := s.host.Capabilities(ctx)
	return reply(&caissonv1.CapabilitiesResponse{Capabilities: each(capabilities, capabilityPB)}, err)
}

func (s system) Stats(ctx context.Context, _ *connect.Request[caissonv1.StatsRequest]) (*connect.Response[caissonv1.StatsResponse], error) {
	stats, err := s.host.Stats(ctx)
	return reply(statsPB(stats), err)
}
