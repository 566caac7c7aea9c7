package api

import (
	"context"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// ListSecrets returns the secrets of routes, without their values. Only root may call it.
func (c *Client) ListSecrets(ctx context.Context, req *caissonv1.ListSecretsRequest) (*caissonv1.ListSecretsResponse, error) {
	return call(ctx, c.secrets().ListSecrets, req)
}
