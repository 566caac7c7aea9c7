package config

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestWebhooks(t *testing.T) {
	for text, want := range map[string]string{
		"webhooks: [{url: 'https://hooks.example.com/x', secret_file: /etc/s, filter: [type=alert.raised]}]": "",
		"webhooks: [{url: 'http://127.0.0.1:8080/', secret_file: /etc/s}]":                                   "",
		"webhooks: [{url: 'http://[::1]:8080/', secret_file: /etc/s}]":                                       "",
		"air_gapped: true\nwebhooks: [{url: 'http://127.0.0.1:1/', secret_file: /etc/s}]":                    "",
		"webhooks: [{url: 'http://hooks.example.com/', secret_file: /etc/s}]":                                "is not encrypted",
		"webhooks: [{url: 'http://localhost:1/', secret_file: /etc/s}]":                                      "is not encrypted",
		"webhooks: [{url: 'http://10.0.0.1/', secret_file: /etc/s}]":                                         "is not encrypted",
		"webhooks: [{url: 'ftp://hooks.example.com/', secret_file: /etc/s}]":                                 "is no URL",
		"webhooks: [{url: hooks.example.com, secret_file: /etc/s}]":                                          "is no URL",
		"webhooks: [{secret_file: /etc/s}]":                                                                  "is no URL",
		"webhooks: [{url: 'https://u:p@hooks.example.com/', secret_file: /etc/s}]":                           "a user or a fragment",
		"webhooks: [{url: 'https://hooks.example.com/'}]":                                                    "webhooks[0].secret_file",
		"webhooks: [{url: 'https://hooks.example.com/', secret_file: s}]":                                    "webhooks[0].secret_file",
		"air_gapped: true\nwebhooks: [{url: 'https://hooks.example.com/', secret_file: /etc/s}]":             "air_gapped forbids",
		"webhooks: [{url: 'https://hooks.example.com/', secret: /etc/s}]":                                    `unknown key "secret"`,
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
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the error quotes the password", text)
		}
	}
}
