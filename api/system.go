package api

import (
	"context"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// Version says what the daemon is.
func (c *Client) Version(ctx context.Context, req *caissonv1.VersionRequest) (*caissonv1.VersionResponse, error) {
	return call(ctx, c.system().Version, req)
}

// Doctor examines the daemon's host.
func (c *Client) Doctor(ctx context.Context, req *caissonv1.DoctorRequest) (*caissonv1.DoctorResponse, error) {
	return call(ctx, c.system().Doctor, req)
}

// Capabilities says how each field of a request is honoured on this host.
func (c *Client) Capabilities(ctx context.Context, req *caissonv1.CapabilitiesRequest) (*caissonv1.CapabilitiesResponse, error) {
	return call(ctx, c.system().Capabilities, req)
}

// Info returns the daemon's counters.
func (c *Client) Info(ctx context.Context) (*caissonv1.InfoResponse, error) {
	return call(ctx, c.system().Info, &caissonv1.InfoRequest{})
}

// Ping says whether the daemon can run something now, and why it cannot.
func (c *Client) Ping(ctx context.Context) (*caissonv1.PingResponse, error) {
	return call(ctx, c.system().Ping, &caissonv1.PingRequest{})
}

// ReloadConfig has the daemon read its configuration again.
func (c *Client) ReloadConfig(ctx context.Context) (*caissonv1.ReloadConfigResponse, error) {
	return call(ctx, c.system().ReloadConfig, &caissonv1.ReloadConfigRequest{})
}
