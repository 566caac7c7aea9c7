package server_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/secrets"
	"github.com/caisson-run/caisson/server/servertest"
)

func TestSecrets(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	client := dial(t, &servertest.Fake{Secrets: []secrets.Secret{
		{Name: "key", Source: "file:/k", Read: at, Used: at.Add(time.Second), Routes: []string{"agent/gpt"}},
		{Name: "new", Source: "env:NEW", Err: errors.New("it is\x00not there")},
	}})
	got, err := client.ListSecrets(t.Context(), &caissonv1.ListSecretsRequest{})
	if err != nil || len(got.Secrets) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if s := got.Secrets[0]; s.Name != "key" || s.Source != "file:/k" || !s.ReadAt.AsTime().Equal(at) || !s.UsedAt.AsTime().Equal(at.Add(time.Second)) || s.Error != "" || !slices.Equal(s.Routes, []string{"agent/gpt"}) {
		t.Errorf("%v", s)
	}
	if s := got.Secrets[1]; s.ReadAt != nil || s.UsedAt != nil || s.Error == "" || len(s.Routes) != 0 {
		t.Errorf("%v", s)
	}
	if s, err := client.SetSecret(t.Context(), &caissonv1.SetSecretRequest{Name: "other", Source: "file:/o", Refresh: durationpb.New(time.Minute)}); err != nil || s.Refresh.AsDuration() != time.Minute || s.Name != "other" || s.Source != "file:/o" || !s.Kept {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := client.SetSecret(t.Context(), &caissonv1.SetSecretRequest{Name: "key", Source: "file:/o"}); !errors.Is(err, sbxerr.Exists) {
		t.Errorf("one of the configuration: %v", err)
	}
	for name, want := range map[string]error{"key": sbxerr.SecretInUse, "absent": sbxerr.SecretNotFound, "new": nil} {
		if _, err := client.RemoveSecret(t.Context(), &caissonv1.RemoveSecretRequest{Name: name}); !errors.Is(err, want) {
			t.Errorf("remove %s: %v, want %v", name, err, want)
		}
	}
}
