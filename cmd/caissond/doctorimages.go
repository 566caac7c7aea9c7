package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/doctor"
	"github.com/caisson-run/caisson/sbxerr"
)

// imageChecks names the images whose stored copy is damaged.
func (h hostDoctor) imageChecks(ctx context.Context) []runtime.Check {
	const name = "images"
	list, err := h.engine.ListImages(ctx)
	if err != nil {
		return []runtime.Check{{Name: name, Status: doctor.Unknown, Detail: err.Error()}}
	}
	var bad []string
	for _, i := range list {
		if i.Damaged != "" {
			bad = append(bad, fmt.Sprintf("%s: %s", i.Key(), i.Damaged))
		}
	}
	if len(bad) == 0 {
		return []runtime.Check{{Name: name, Status: doctor.OK, Detail: fmt.Sprintf("%d, none is damaged", len(list))}}
	}
	d, _ := sbxerr.Describe(sbxerr.ImageDamaged)
	return []runtime.Check{{Name: name, Status: doctor.Warn, Detail: strings.Join(bad, "; "), Code: string(sbxerr.ImageDamaged), Remedy: d.Remedy}}
}
