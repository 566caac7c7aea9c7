package server

import (
	"context"

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

func secretPB(s secrets.Secret) *caissonv1.Secret {
	pb := &caissonv1.Secret{Name: s.Name, Source: s.Source, ReadAt: timestamp(s.Read), UsedAt: timestamp(s.Used), Routes: s.Routes}
	if s.Err != nil {
		pb.Error = text(api.Explain(s.Err).Error())
	}
	return pb
}
