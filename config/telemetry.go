package config

import (
	"errors"
	"fmt"
)

// Telemetry says where traces go.
type Telemetry struct {
	OTLP OTLP `yaml:"otlp" json:"otlp"`
}

// OTLP is a receiver of OpenTelemetry's protocol.
type OTLP struct {
	Endpoint    string `yaml:"endpoint" json:"endpoint" jsonschema:"description=URL of a receiver of OTLP by HTTP: https\\, or http at the loopback interface; empty traces nothing,example=https://collector.example.com:4318/v1/traces"`
	CA          string `yaml:"ca" json:"ca" jsonschema:"description=File with the certificates that sign the receiver's; empty takes the host's"`
	HeadersFile string `yaml:"headers_file" json:"headers_file" jsonschema:"description=File of root's alone with headers for the receiver\\, a line NAME: VALUE each"`
}

func (c *Config) validateTelemetry() error {
	o := c.Telemetry.OTLP
	if o.Endpoint == "" {
		if o.CA != "" || o.HeadersFile != "" {
			return errors.New("telemetry.otlp: ca and headers_file need an endpoint")
		}
		return nil
	}
	errs := []error{validateURL("telemetry.otlp.endpoint", o.Endpoint, c.AirGapped)}
	for key, path := range map[string]string{"ca": o.CA, "headers_file": o.HeadersFile} {
		if path != "" {
			errs = append(errs, absolute(fmt.Sprintf("telemetry.otlp.%s", key), path))
		}
	}
	return errors.Join(errs...)
}
