package config

import (
	"errors"
	"fmt"
	"net/netip"
)

// Listen says where the API is served to callers from the network.
type Listen struct {
	TCP      string `yaml:"tcp" json:"tcp" jsonschema:"description=Serve the API by TLS 1.3 on this ADDRESS:PORT to callers with a key or certificate (caisson key); empty serves nobody from the network,example=192.0.2.1:7443"`
	Cert     string `yaml:"cert" json:"cert" jsonschema:"description=File with the daemon's certificate and those between it and its root; read again on reload"`
	Key      string `yaml:"key" json:"key" jsonschema:"description=File of root's alone with the key of that certificate; read again on reload"`
	ClientCA string `yaml:"client_ca" json:"client_ca" jsonschema:"description=File with the certificates that sign those of clients: without one a client cannot connect at all; empty asks clients for none"`
	Page     bool   `yaml:"page" json:"page" jsonschema:"description=Serve the page there too\\, to who enters a key"`
}

func (c *Config) validateListen() error {
	l := c.Listen
	if l.TCP == "" {
		if l != (Listen{}) {
			return errors.New("listen: cert, key, client_ca and page need listen.tcp")
		}
		return nil
	}
	var errs []error
	a, err := netip.ParseAddrPort(l.TCP)
	if err == nil && a.Port() == 0 {
		err = errors.New("the port is 0")
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("listen.tcp: %q is no ADDRESS:PORT, such as 192.0.2.1:7443: %w", l.TCP, err))
	}
	if l.Cert == "" || l.Key == "" {
		errs = append(errs, errors.New("listen.tcp: it needs listen.cert and listen.key: the API is served to the network by TLS alone"))
	}
	for _, f := range []struct{ key, path string }{{"listen.cert", l.Cert}, {"listen.key", l.Key}, {"listen.client_ca", l.ClientCA}} {
		if f.path != "" {
			errs = append(errs, absolute(f.key, f.path))
		}
	}
	return errors.Join(errs...)
}
