package config

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestAuditExport(t *testing.T) {
	for text, want := range map[string]string{
		"{to: tls, address: 'logs.example.com:6514'}":                                         "",
		"{to: tls, address: 'logs.example.com:6514', ca: /etc/ca.pem, facility: local3}":      "",
		"{to: tcp, address: '127.0.0.1:601'}, {to: tcp, address: '[::1]:601'}":                "",
		"{to: unix, address: /run/log.sock}, {to: journald}, {to: journald, address: /run/j}": "",
		"{to: udp, address: '127.0.0.1:514'}":                                                 "audit.export[0].to: udp loses records",
		"{to: file, address: /var/log/x}":                                                     "audit.export[0].to",
		"{address: '127.0.0.1:514'}":                                                          "audit.export[0].to",
		"{to: tcp, address: 'logs.example.com:601'}":                                          "is not encrypted",
		"{to: tcp, address: 'localhost:601'}":                                                 "is not encrypted",
		"{to: tls, address: logs.example.com}":                                                "is no HOST:PORT",
		"{to: tls, address: 'logs.example.com:0'}":                                            "is no HOST:PORT",
		"{to: tls, address: ':6514'}":                                                         "is no HOST:PORT",
		"{to: unix}":                                                                          "audit.export[0].address",
		"{to: unix, address: log.sock}":                                                       "audit.export[0].address",
		"{to: tls, address: 'logs.example.com:6514', ca: ca.pem}":                             "audit.export[0].ca",
		"{to: tcp, address: '127.0.0.1:601', ca: /etc/ca.pem}":                                "only tls has certificates",
		"{to: journald, facility: local3}":                                                    "only syslog has one",
		"{to: tcp, address: '127.0.0.1:601', facility: local9}":                               "audit.export[0].facility",
		"{to: journald}, {to: journald}":                                                      "audit.export[1]: journald \"\" is there twice",
		"{to: journald, adress: /run/x}":                                                      `did you mean "address"`,
	} {
		checkRefused(t, "audit: {export: ["+text+"]}", want)
	}
	checkRefused(t, "audit: {enabled: false, export: [{to: journald}]}", "audit.export needs audit.enabled")
	checkRefused(t, "air_gapped: true\naudit: {export: [{to: tls, address: 'logs.example.com:6514'}]}", "air_gapped forbids")
	checkRefused(t, "air_gapped: true\naudit: {export: [{to: tls, address: '127.0.0.1:6514'}, {to: journald}]}", "")
}

// checkRefused asserts that the error of a configuration holds want; empty is none.
func checkRefused(t *testing.T, text, want string) {
	t.Helper()
	c, err := load(t, text)
	if err == nil {
		err = c.Complete()
	}
	if want == "" && err != nil || want != "" && (err == nil || sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", text, err, want)
	}
}

func TestFacilityNumber(t *testing.T) {
	for name, want := range map[string]int{"": 10, "local0": 16, "daemon": 3} {
		if n := (Export{Facility: name}).FacilityNumber(); n != want {
			t.Errorf("%q is %d, want %d", name, n, want)
		}
	}
}
