package api

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// ListTemplates returns the templates of the profiles that the caller may use, without logs.
func (c *Client) ListTemplates(ctx context.Context, req *caissonv1.ListTemplatesRequest) (*caissonv1.ListTemplatesResponse, error) {
	return whole(ctx, c.templates().ListTemplates, req)
}

// InspectTemplate returns the template of a profile, with the log of its last build.
func (c *Client) InspectTemplate(ctx context.Context, req *caissonv1.InspectTemplateRequest) (*caissonv1.Template, error) {
	return call(ctx, c.templates().InspectTemplate, req)
}

// BuildTemplate builds the template of a profile where there is none. progress, which may be
// nil, gets the steps and the output of their commands.
func (c *Client) BuildTemplate(ctx context.Context, req *caissonv1.BuildTemplateRequest, progress func(*caissonv1.BuildProgress)) (*caissonv1.Template, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.templates().BuildTemplate(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		if m.Template != nil {
			return m.Template, nil
		}
		if m.Progress != nil && progress != nil {
			progress(m.Progress)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return nil, Explain(sbxerr.New(sbxerr.APIBroken, "api.template", "the daemon ended the call without a template"))
}

// RemoveTemplate removes the templates of a profile. The next request builds one.
func (c *Client) RemoveTemplate(ctx context.Context, req *caissonv1.RemoveTemplateRequest) (*caissonv1.RemoveTemplateResponse, error) {
	return call(ctx, c.templates().RemoveTemplate, req)
}
