package config

import (
	"errors"
	"fmt"
	"time"
)

// Timeouts bounds the steps of a sandbox's life.
type Timeouts struct {
	Create Duration `yaml:"create" json:"create" jsonschema:"description=Most time until a sandbox is ready"`
	Start  Duration `yaml:"start" json:"start" jsonschema:"description=Most time until PID 1 of a sandbox answers\\, and until it has started a command"`
	Remove Duration `yaml:"remove" json:"remove" jsonschema:"description=Most time until the processes of a sandbox that was killed have ended\\, and until it is removed"`
}

func defaultTimeouts() Timeouts {
	return Timeouts{Create: Duration(time.Minute), Start: Duration(15 * time.Second), Remove: Duration(time.Minute)}
}

// validateTimeouts refuses steps that have too little time to succeed, or no end.
func (c *Config) validateTimeouts() error {
	var errs []error
	for _, f := range []struct {
		key       string
		value     Duration
		low, high time.Duration
	}{
		{"timeouts.create", c.Timeouts.Create, time.Second, time.Hour},
		{"timeouts.start", c.Timeouts.Start, time.Second, time.Hour},
		{"timeouts.remove", c.Timeouts.Remove, time.Second, time.Hour},
		{"containerd.call_timeout", c.Containerd.CallTimeout, time.Second, time.Hour},
		{"containerd.backoff", c.Containerd.Backoff, time.Millisecond, time.Minute},
	} {
		if v := time.Duration(f.value); v < f.low || v > f.high {
			errs = append(errs, fmt.Errorf("%s: %s is not in %s to %s", f.key, v, f.low, f.high))
		}
	}
	if n := c.Containerd.Attempts; n < 1 || n > 20 {
		errs = append(errs, fmt.Errorf("containerd.attempts: %d is not in 1 to 20", n))
	}
	return errors.Join(errs...)
}
