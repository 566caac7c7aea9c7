// Package imagejobs is the work of caisson-images. Any program that links it becomes
// caisson-images when it is started by that name, as the tests are.
package imagejobs

import (
	"maps"
	"os"

	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/dockerfile"
	"github.com/caisson-run/caisson/rootfs/fromhost"
	"github.com/caisson-run/caisson/rootfs/image/filter"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
	"github.com/caisson-run/caisson/rootfs/patch"
	"github.com/caisson-run/caisson/rootfs/patch/unified"
	"github.com/caisson-run/caisson/rootfs/registry"
)

// handlers do the work, by its kind.
var handlers = map[string]imageproc.Handler{
	buildplan.Kind:      dockerfile.Serve,
	imagework.KindHost:  fromhost.Serve,
	imagework.KindFetch: registry.Serve,
	patch.Kind:          unified.Serve,
}

func init() {
	maps.Copy(handlers, filter.Handlers)
	if len(os.Args) > 0 && os.Args[0] == imageproc.Name {
		os.Exit(imageproc.Main(handlers))
	}
}
