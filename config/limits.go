package config

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/caisson-run/caisson/api/settings"
)

// Override sets the limits that p names.
func (p Profile) Override(to *settings.Limits) error { return override(p, to) }

// Override sets the ceilings that p names.
func (p PeerLimits) Override(to *settings.Limits) error { return override(p, to) }

// override sets the limits whose keys from, a struct, has and names. What is wrong is told
// with the key's name.
func override(from any, to *settings.Limits) error {
	var errs []error
	for i := range settings.Table {
		row := &settings.Table[i]
		f := limitKey(from, row)
		switch {
		case !f.IsValid() || f.IsZero():
		case f.Kind() == reflect.Int64:
			*row.Of(to) = f.Int()
		default:
			n, err := row.Unit.Parse(f.String())
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", row.Key, err))
				continue
			}
			*row.Of(to) = n
		}
	}
	return errors.Join(errs...)
}

// limitKey returns the field of from, a struct, that has the key of row.
func limitKey(from any, row *settings.Limit) reflect.Value {
	v := reflect.ValueOf(from)
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == row.Key {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}
