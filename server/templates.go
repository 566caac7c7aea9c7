package server

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/templates"
)

// Templates manages the results of set-ups.
type Templates interface {
	List(ctx context.Context) ([]templates.Info, error)
	Inspect(ctx context.Context, profile string) (templates.Info, error)
	Build(ctx context.Context, profile string, noCache bool, report func(images.BuildEvent)) (templates.Info, error)
	Remove(ctx context.Context, profile string) error
}

// templateService serves TemplateService.
type templateService struct{ store Templates }

func (s templateService) ListTemplates(ctx context.Context, r *connect.Request[caissonv1.ListTemplatesRequest]) (*connect.Response[caissonv1.ListTemplatesResponse], error) {
	list, err := s.store.List(ctx)
	if err != nil {
		return nil, fail(err)
	}
	list, next, err := page("templates", list, func(i templates.Info) string { return i.Profile }, r.Msg)
	return reply(&caissonv1.ListTemplatesResponse{Templates: each(list, templatePB), Next: next}, err)
}

func (s templateService) InspectTemplate(ctx context.Context, r *connect.Request[caissonv1.InspectTemplateRequest]) (*connect.Response[caissonv1.Template], error) {
	i, err := s.store.Inspect(ctx, r.Msg.Profile)
	return reply(templatePB(i), err)
}

func (s templateService) BuildTemplate(ctx context.Context, r *connect.Request[caissonv1.BuildTemplateRequest], stream *connect.ServerStream[caissonv1.TemplateProgress]) error {
	send := lockedSend(stream)
	i, err := s.store.Build(ctx, r.Msg.Profile, r.Msg.NoCache, func(e images.BuildEvent) {
		_ = send(&caissonv1.TemplateProgress{Progress: buildEventPB(e)}) // see progressTo
	})
	if err != nil {
		return fail(err)
	}
	return fail(send(&caissonv1.TemplateProgress{Template: templatePB(i)}))
}

func (s templateService) RemoveTemplate(ctx context.Context, r *connect.Request[caissonv1.RemoveTemplateRequest]) (*connect.Response[caissonv1.RemoveTemplateResponse], error) {
	return reply(&caissonv1.RemoveTemplateResponse{}, s.store.Remove(ctx, r.Msg.Profile))
}

func templatePB(i templates.Info) *caissonv1.Template {
	t := &caissonv1.Template{Profile: i.Profile, Base: i.Base, State: i.State, Key: i.Key, BuiltAt: timestamp(i.BuiltAt), Error: text(i.Error), Log: text(i.Log)}
	if i.State == templates.StateReady {
		t.Image = imagePB(i.Image)
	}
	if !i.BuiltAt.IsZero() {
		t.Took = durationpb.New(i.Took)
	}
	return t
}
