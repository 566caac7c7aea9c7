package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// Webhook is a server of the operator's that is told of events.
type Webhook struct {
	URL        string   `yaml:"url" json:"url" jsonschema:"description=https\\, or http at the loopback interface,example=https://hooks.example.com/caisson"`
	SecretFile string   `yaml:"secret_file" json:"secret_file" jsonschema:"description=File of root's alone with the secret that deliveries are signed with: whsec_ and 24 to 64 bytes in base64"`
	Filter     []string `yaml:"filter" json:"filter" jsonschema:"description=Terms KEY=VALUE\\, as of caisson events; empty takes all,example=type=alert.raised"`
}

func (c *Config) validateWebhooks() error {
	var errs []error
	for i, w := range c.Webhooks {
		key := fmt.Sprintf("webhooks[%d].", i)
		errs = append(errs, validateURL(key+"url", w.URL, c.AirGapped), absolute(key+"secret_file", w.SecretFile))
	}
	return errors.Join(errs...)
}

// validateURL is for a server that the daemon sends to: encrypted, or on the host.
func validateURL(key, text string, airGapped bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s: %q is no URL such as https://hooks.example.com/caisson", key, text)
	case u.User != nil || u.Fragment != "":
		return fmt.Errorf("%s: a URL with a user or a fragment: leave them out", key)
	}
	a, err := netip.ParseAddr(u.Hostname())
	loopback := err == nil && a.IsLoopback()
	switch {
	case u.Scheme == "http" && !loopback:
		return fmt.Errorf("%s: %q is not encrypted: use https, or an address of the loopback interface", key, text)
	case airGapped && !loopback:
		return fmt.Errorf("%s: %q leaves the host, which air_gapped forbids", key, text)
	}
	return nil
}
