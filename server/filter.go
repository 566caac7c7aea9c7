package server

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/runtime"
)

// filter selects sandboxes.
type filter struct {
	*caissonv1.ListRequest
	before time.Time // they were created by then; zero: whenever
}

func noState(s string) error {
	if near := sbxerr.Nearest(s, settings.States); near != "" {
		return fmt.Errorf("there is no state %q; did you mean %q?", sbxerr.Clip(s), near)
	}
	return fmt.Errorf("there is no state %q", sbxerr.Clip(s))
}

func filterOf(r *caissonv1.ListRequest, now time.Time) (filter, error) {
	const op = "server.list"
	f := filter{ListRequest: r}
	if _, err := path.Match(r.GetName(), ""); err != nil {
		return f, sbxerr.WithRemedy(sbxerr.Config, op, fmt.Errorf("name %q is not a pattern", sbxerr.Clip(r.GetName())), "use * and ?, and [a-z] for one of some characters")
	}
	for _, s := range r.GetStates() {
		if !slices.Contains(settings.States, s) {
			return f, sbxerr.WithRemedy(sbxerr.Config, op, noState(s), "use one of "+strings.Join(settings.States, ", "))
		}
	}
	age, err := notNegative("older_than", r.GetOlderThan())
	if err != nil {
		return f, err
	}
	if age != nil {
		f.before = now.Add(-*age)
	}
	return f, nil
}

func (f filter) selects(i runtime.Info) bool {
	for k, v := range f.GetLabels() {
		if have, ok := i.Labels[k]; !ok || have != v {
			return false
		}
	}
	named, _ := path.Match(f.GetName(), i.Name) // filterOf has refused a bad pattern
	return (f.GetName() == "" || named) &&
		(f.GetSession() == "" || f.GetSession() == i.Session) &&
		(f.GetTask() == "" || f.GetTask() == i.Task) &&
		(len(f.GetStates()) == 0 || slices.Contains(f.GetStates(), string(i.State))) &&
		(f.before.IsZero() || i.CreatedAt.Before(f.before))
}
