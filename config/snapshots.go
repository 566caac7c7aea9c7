package config

import (
	"fmt"
	"time"
)

// Snapshots bounds those of each user that have no name of their own.
type Snapshots struct {
	Kept      int64    `yaml:"kept" json:"kept" jsonschema:"description=Snapshots without a name of their own of each user; the oldest go first; 0 is no bound"`
	KeptBytes Size     `yaml:"kept_bytes" json:"kept_bytes" jsonschema:"description=Bytes that files take in those of each user; 0 is no bound"`
	KeptFor   Duration `yaml:"kept_for" json:"kept_for" jsonschema:"description=How long one is kept; 0s is for ever"`
}

func (s Snapshots) validate() (errs []error) {
	if s.Kept < 0 || s.Kept > 1<<12 {
		errs = append(errs, fmt.Errorf("snapshots.kept: %d is not in 0 to %d", s.Kept, 1<<12))
	}
	if s.KeptBytes < 0 {
		errs = append(errs, fmt.Errorf("snapshots.kept_bytes: %d is negative", s.KeptBytes))
	}
	if v := time.Duration(s.KeptFor); v != 0 && (v < time.Minute || v > 366*24*time.Hour) {
		errs = append(errs, fmt.Errorf("snapshots.kept_for: %s is neither 0s nor in %s to %s", v, time.Minute, 366*24*time.Hour))
	}
	return errs
}
