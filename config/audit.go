package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Audit shapes the audit log.
type Audit struct {
	Enabled  bool     `yaml:"enabled" json:"enabled" jsonschema:"description=Record what happens on the host in root/audit"`
	Required bool     `yaml:"required" json:"required" jsonschema:"description=Nothing runs whose record cannot be written"`
	MaxBytes Size     `yaml:"max_bytes" json:"max_bytes" jsonschema:"description=Bytes that are kept; the oldest segments are removed; 0 keeps all"`
	MaxAge   Duration `yaml:"max_age" json:"max_age" jsonschema:"description=A full segment is removed so long after its last record; 0 never"`
}

// minAudit leaves room for the segment that is written and a full one.
const minAudit = 256 << 20

func defaultAudit() Audit { return Audit{Enabled: true, MaxBytes: 8 << 30} }

// AuditDir is the directory of the audit log.
func (c *Config) AuditDir() string { return filepath.Join(c.Root, "audit") }

func (c *Config) validateAudit() error {
	var errs []error
	a := c.Audit
	if a.Required && !a.Enabled {
		errs = append(errs, errors.New("audit.required needs audit.enabled"))
	}
	if a.MaxBytes != 0 && a.MaxBytes < minAudit {
		errs = append(errs, fmt.Errorf("audit.max_bytes: %d is below %d", a.MaxBytes, minAudit))
	}
	if a.MaxAge < 0 {
		errs = append(errs, errors.New("audit.max_age must not be negative"))
	}
	return errors.Join(errs...)
}
