package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
	"github.com/caisson-run/caisson/runtime/doctor"
	"github.com/caisson-run/caisson/runtime/images"
)

// imageChecks names the images whose stored copy is damaged, and what was set aside
// because containerd could not use it.
func (h hostDoctor) imageChecks(ctx context.Context) []runtime.Check {
	checks := h.damagedImages(ctx)
	for _, dir := range ctrd.SetAside(enginePaths(*h.config())) {
		checks = append(checks, runtime.Check{Name: "containerd", Status: doctor.Warn, Detail: "a broken directory was set aside: " + dir, Remedy: "import its images again, and remove it"})
	}
	return checks
}

func (h hostDoctor) damagedImages(ctx context.Context) []runtime.Check {
	const name = "images"
	list, err := h.engine.ListImages(ctx)
	if err != nil {
		return []runtime.Check{{Name: name, Status: doctor.Unknown, Detail: err.Error()}}
	}
	var bad []string
	named := 0
	for _, i := range list {
		if !images.OfBuild(i.Name) {
			named++
		}
		if i.Damaged != "" {
			bad = append(bad, fmt.Sprintf("%s: %s", i.Key(), i.Damaged))
		}
	}
	if len(bad) == 0 {
		return []runtime.Check{{Name: name, Status: doctor.OK, Detail: fmt.Sprintf("%d, and %d steps of builds: none is damaged", named, len(list)-named)}}
	}
	d, _ := sbxerr.Describe(sbxerr.ImageDamaged)
	return []runtime.Check{{Name: name, Status: doctor.Warn, Detail: strings.Join(bad, "; "), Code: string(sbxerr.ImageDamaged), Remedy: d.Remedy}}
}
