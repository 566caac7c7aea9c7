package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/server"
	"github.com/caisson-run/caisson/tracing"
)

// lastSpans is how long the spans that wait at the end may take.
const lastSpans = 3 * time.Second

// openTracing sends spans to the receiver that the configuration names.
func (d *daemon) openTracing(c config.Config, host string) error {
	o := c.Telemetry.OTLP
	if o.Endpoint == "" {
		return nil
	}
	tlsConfig, err := tlsOf(o.CA)
	if err != nil {
		return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.tracing", fmt.Errorf("telemetry.otlp.ca: %w", err))
	}
	headers, err := readHeaders(o.HeadersFile)
	if err != nil {
		return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.tracing", fmt.Errorf("telemetry.otlp.headers_file: %w", err))
	}
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil { // checked with the configuration
		return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.tracing", err)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	d.tracer, err = tracing.New(tracing.Options{Endpoint: endpoint.String(), TLS: tlsConfig, Headers: headers, Version: version, Instance: c.Instance(), Host: host, Log: d.log})
	if err != nil {
		return err
	}
	d.onStop(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpans)
		defer cancel()
		if err := d.tracer.Close(ctx); err != nil {
			d.log.Warn("tracing: the last spans are dropped", "err", err)
		}
		return nil
	})
	return nil
}

// tlsOf trusts the certificates in the file ca, or those of the host where it is empty.
func tlsOf(ca string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return c, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New(ca + " holds no certificate in PEM")
	}
	return c, nil
}

// readHeaders reads a file with a line NAME: VALUE for each header. Errors quote none.
func readHeaders(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	secret, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for i, line := range strings.Split(secret.Reveal(), "\n") {
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("line %d of %q is no header NAME: VALUE", i+1, path)
		}
		headers[name] = value
	}
	return headers, nil
}

// called tells of a call that is over.
func (d *daemon) called(c server.Call) {
	d.metrics.Called(c.Procedure, c.Code, c.Took)
	if d.tracer == nil || c.Procedure == "" || c.Quiet && c.Parent == "" {
		return
	}
	d.tracer.Called(tracing.Call{Procedure: c.Procedure, Code: string(c.Code), Begun: c.Begun, Took: c.Took, Traceparent: c.Trace, Parent: c.Parent, RequestID: c.RequestID, Sandbox: c.Sandbox, Exec: c.Exec})
}
