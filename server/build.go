package server

import (
	"context"
	"errors"
	"reflect"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/plan"
)

// BuildImage implements ImageServiceHandler.
func (s imageService) BuildImage(ctx context.Context, r *connect.Request[caissonv1.BuildImageRequest], stream *connect.ServerStream[caissonv1.BuildProgress]) error {
	req, err := buildOf(r.Msg)
	if err != nil {
		return fail(err)
	}
	if r.Msg.NeedsOnly {
		needs, err := s.store.BuildNeeds(ctx, req)
		if err != nil {
			return fail(err)
		}
		return fail(stream.Send(&caissonv1.BuildProgress{Needs: &caissonv1.BuildNeeds{Images: needs.Images, Context: needs.Context}}))
	}
	send := lockedSend(stream)
	done, err := s.store.Build(ctx, req, func(e images.BuildEvent) { _ = send(buildEventPB(e)) }) // see progressTo
	if err != nil {
		return fail(err)
	}
	return fail(send(&caissonv1.BuildProgress{Image: imagePB(done.Image), Replaced: done.Replaced}))
}

func buildOf(m *caissonv1.BuildImageRequest) (imageservice.BuildRequest, error) {
	timeout, timeoutErr := notNegative("timeout", m.Timeout)
	sandbox, sandboxErr := createOf(m.Sandbox)
	errs := []error{checkImage(m.Name), timeoutErr, sandboxErr, onlyForBuild(sandbox), checkSecrets(m.Secrets)}
	if m.Context != "" {
		errs = append(errs, checkImage(m.Context))
	}
	return imageservice.BuildRequest{
		Name: m.Name, Dockerfile: m.Dockerfile, Context: m.Context, Args: m.Args, Target: m.Target, NoCache: m.NoCache,
		Sandbox: sandbox, Timeout: timeout, Secrets: m.Secrets,
	}, errors.Join(errs...)
}

// Bounds of the secrets of a build.
const (
	maxSecrets     = 64
	maxSecretBytes = 500 << 10
)

func checkSecrets(secrets map[string][]byte) error {
	if len(secrets) > maxSecrets {
		return sbxerr.New(sbxerr.APIUsage, "server.build", "%d secrets: at most %d", len(secrets), maxSecrets)
	}
	var reasons sbxerr.Reasons
	for id, data := range secrets {
		if id == "" || len(data) > maxSecretBytes {
			reasons.Add(sbxerr.New(sbxerr.APIUsage, "server.build", "secret %q has %d bytes: give it a name, and at most %d bytes", sbxerr.Clip(id), len(data), maxSecretBytes))
		}
	}
	return reasons.Err()
}

// onlyForBuild refuses what the sandbox of a step gets from the Dockerfile, or cannot have.
func onlyForBuild(r plan.CreateRequest) error {
	allowed := plan.CreateRequest{Profile: r.Profile, Network: r.Network, Allow: r.Allow, Deny: r.Deny, AllowECH: r.AllowECH, Limits: r.Limits}
	r.Env, r.Labels = nonEmpty(r.Env), nil
	if !reflect.DeepEqual(r, allowed) {
		return sbxerr.New(sbxerr.APIUsage, "server.build", "sandbox may hold profile, limits, network, allow, deny and allow_ech alone")
	}
	return nil
}

func nonEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func buildEventPB(e images.BuildEvent) *caissonv1.BuildProgress {
	p := &caissonv1.BuildProgress{Step: int32(e.Step), Steps: int32(e.Steps), Line: int32(e.Line), Instruction: text(e.Text), Cached: e.Cached}
	if e.Stderr {
		p.Stderr = e.Output
	} else {
		p.Stdout = e.Output
	}
	return p
}
