package api

import (
	"context"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// ListSecrets returns the secrets of routes, without their values. Only root may call it.
func (c *Client) ListSecrets(ctx context.Context, req *caissonv1.ListSecretsRequest) (*caissonv1.ListSecretsResponse, error) {
	return call(ctx, c.secrets().ListSecrets, req)
}

// SetSecret has the daemon keep where the value of a secret comes from, and use it from the next
// request on. Only root may call it.
func (c *Client) SetSecret(ctx context.Context, req *caissonv1.SetSecretRequest) (*caissonv1.Secret, error) {
	return call(ctx, c.secrets().SetSecret, req)
}

// RemoveSecret removes a secret of SetSecret that no route of the configuration uses.
func (c *Client) RemoveSecret(ctx context.Context, req *caissonv1.RemoveSecretRequest) (*caissonv1.RemoveSecretResponse, error) {
	return call(ctx, c.secrets().RemoveSecret, req)
}
