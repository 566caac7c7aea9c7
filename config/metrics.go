package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
)

// Metrics says where metrics and health are served.
type Metrics struct {
	Address string `yaml:"address" json:"address" jsonschema:"description=Serve metrics and health by HTTP on this ADDRESS:PORT\\, too; everybody who reaches it can read them; empty serves them on metrics.sock in state alone"`
}

// MetricsSocket is the unix socket of metrics and health.
func (c *Config) MetricsSocket() string { return filepath.Join(c.State, "metrics.sock") }

func (c *Config) validateMetrics() error {
	if c.Metrics.Address == "" {
		return nil
	}
	a, err := netip.ParseAddrPort(c.Metrics.Address)
	if err == nil && a.Port() == 0 {
		err = errors.New("the port is 0")
	}
	if err != nil {
		return fmt.Errorf("metrics.address: %q is no ADDRESS:PORT, such as 127.0.0.1:9464: %w", c.Metrics.Address, err)
	}
	return nil
}
