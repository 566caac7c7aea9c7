package server

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/secrets"
)

// secretService serves SecretService.
type secretService struct{ store Secrets }

func (s secretService) ListSecrets(ctx context.Context, _ *connect.Request[caissonv1.ListSecretsRequest]) (*connect.Response[caissonv1.ListSecretsResponse], error) {
	list, err := s.store.List(ctx)
	return reply(&caissonv1.ListSecretsResponse{Secrets: each(list, secretPB)}, err)
}

func (s secretService) SetSecret(ctx context.Context, r *connect.Request[caissonv1.SetSecretRequest]) (*connect.Response[caissonv1.Secret], error) {
	refresh, err := notNegative("refresh", r.Msg.Refresh)
	if err != nil {
		return nil, fail(err)
	}
	if refresh == nil {
		refresh = new(time.Duration)
	}
	v, err := s.store.Set(ctx, r.Msg.Name, r.Msg.Source, *refresh)
	return reply(secretPB(v), err)
}

func (s secretService) RemoveSecret(ctx context.Context, r *connect.Request[caissonv1.RemoveSecretRequest]) (*connect.Response[caissonv1.RemoveSecretResponse], error) {
	return reply(&caissonv1.RemoveSecretResponse{}, s.store.Remove(ctx, r.Msg.Name))
}

func secretPB(s secrets.Secret) *caissonv1.Secret {
	pb := &caissonv1.Secret{Name: s.Name, Source: s.Source, ReadAt: timestamp(s.Read), UsedAt: timestamp(s.Used), Routes: s.Routes, Kept: s.Kept, Refresh: duration(s.Refresh)}
	if s.Err != nil {
		pb.Error = text(api.Explain(s.Err).Error())
	}
	return pb
}
