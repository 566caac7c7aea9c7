package cgroups

import (
	"errors"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
)

// Limits bounds one sandbox. Memory, CPU and PIDs are required: zero is an error and never
// means unlimited. What no cgroup enforces (OpenFiles, TmpfsBytes, ShmBytes) is ignored.
type Limits settings.Limits

// Validate reports every reason why l is refused, with code sbxerr.Limits.
func (l Limits) Validate() error {
	var errs []error
	for i := range settings.Table {
		if row := &settings.Table[i]; row.Controller != "" {
			errs = append(errs, row.Check(*row.Of((*settings.Limits)(&l))))
		}
	}
	return sbxerr.Wrap(sbxerr.Limits, "cgroups.validate", errors.Join(errs...))
}
