package server

import (
	"context"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
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

func (s system) Ping(ctx context.Context, _ *connect.Request[caissonv1.PingRequest]) (*connect.Response[caissonv1.PingResponse], error) {
	if err := s.host.Ready(ctx); err != nil {
		return reply(&caissonv1.PingResponse{Reason: text(api.Explain(err).Error())}, nil)
	}
	return reply(&caissonv1.PingResponse{Ready: true}, nil)
}

func (s system) Info(ctx context.Context, _ *connect.Request[caissonv1.InfoRequest]) (*connect.Response[caissonv1.InfoResponse], error) {
	info, err := s.host.HostInfo(ctx)
	return reply(infoPB(info), err)
}

func (s system) ReloadConfig(ctx context.Context, _ *connect.Request[caissonv1.ReloadConfigRequest]) (*connect.Response[caissonv1.ReloadConfigResponse], error) {
	reloaded, err := s.host.ReloadConfig(ctx)
	return reply(reloadedPB(reloaded), err)
}
