package plan

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/caisson-run/caisson/api/settings"
)

// Differences names the settings that a and b do not have alike, as the API spells them.
func Differences(a, b CreateRequest) (names []string) {
	a, b = normal(a), normal(b)
	for i := range settings.Table {
		row := &settings.Table[i]
		if x, y := row.In(a.Limits), row.In(b.Limits); (x == nil) != (y == nil) || x != nil && *x != *y {
			names = append(names, "limits."+row.Field)
		}
	}
	a.Limits, b.Limits = nil, nil
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			names = append(names, strings.ToLower(wordEnd.ReplaceAllString(x.Type().Field(i).Name, "${1}_${2}")))
		}
	}
	return names
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// normal is r with the several ways to say nothing made one.
func normal(r CreateRequest) CreateRequest {
	if len(r.Env) == 0 {
		r.Env = nil
	}
	if r.IdleTimeout != nil && *r.IdleTimeout == 0 {
		r.IdleTimeout = nil
	}
	if len(r.Allow) == 0 {
		r.Allow = nil
	}
	if len(r.Deny) == 0 {
		r.Deny = nil
	}
	if len(r.Publish) == 0 {
		r.Publish = nil
	}
	if len(r.Expose) == 0 {
		r.Expose = nil
	}
	if len(r.Links) == 0 {
		r.Links = nil
	}
	if len(r.Routes) == 0 {
		r.Routes = nil
	}
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	return r
}
