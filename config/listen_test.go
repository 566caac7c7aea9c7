package config

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestListen(t *testing.T) {
	if d := Default(); d.Listen != (Listen{}) {
		t.Errorf("the network is served by default: %+v", d.Listen)
	}
	for text, want := range map[string]string{
		"listen: {tcp: '192.0.2.1:7443', cert: /c.pem, key: /k.pem}":                 "",
		"listen: {tcp: '[::]:7443', cert: /c.pem, key: /k.pem, client_ca: /ca.pem}":  "",
		"listen: {tcp: '192.0.2.1:7443'}":                                            "by TLS alone",
		"listen: {tcp: '127.0.0.1:7443', cert: /c.pem}":                              "by TLS alone",
		"listen: {tcp: '192.0.2.1:7443', client_ca: /ca.pem}":                        "by TLS alone",
		"listen: {tcp: ':7443', cert: /c.pem, key: /k.pem}":                          "is no ADDRESS:PORT",
		"listen: {tcp: 'localhost:7443', cert: /c.pem, key: /k.pem}":                 "is no ADDRESS:PORT",
		"listen: {tcp: '192.0.2.1:0', cert: /c.pem, key: /k.pem}":                    "the port is 0",
		"listen: {cert: /c.pem, key: /k.pem}":                                        "need listen.tcp",
		"listen: {tcp: '192.0.2.1:1', cert: c.pem, key: /k.pem}":                     "listen.cert",
		"listen: {tcp: '192.0.2.1:1', cert: /c.pem, key: k.pem}":                     "listen.key",
		"listen: {tcp: '192.0.2.1:1', cert: /c.pem, key: /k.pem, client_ca: ca.pem}": "listen.client_ca",
		"listen: {tcp: '192.0.2.1:1', cert: /c.pem, key: /k.pem, clientca: /ca.pem}": `did you mean "client_ca"?`,
	} {
		c, err := load(t, text)
		if err == nil {
			err = c.Complete()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
