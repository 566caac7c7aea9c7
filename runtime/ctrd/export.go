package ctrd

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/images/archive"

	"github.com/caisson-run/caisson/runtime/images"
)

// Export writes images as one tar, which is both an OCI layout and what docker save
// writes.
func (e *Engine) Export(ctx context.Context, list []images.Stored, w io.Writer) error {
	var options []archive.ExportOpt
	for _, i := range list {
		options = append(options, archive.WithManifest(i.Manifest, i.Name))
	}
	began := &counter{w: w}
	return e.callUnbounded(ctx, "ctrd.export", "save images of", e.cfg.Namespace, func(ctx context.Context) error {
		if began.n > 0 { // the first part has left
			return fmt.Errorf("save again: %w", io.ErrShortWrite)
		}
		err := archive.Export(ctx, e.client.ContentStore(), began, options...)
		for _, i := range list {
			if err != nil && ctx.Err() == nil {
				err = e.whyUnread(ctx, i, err)
			}
		}
		return err
	})
}
