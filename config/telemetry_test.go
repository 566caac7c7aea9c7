package config

import "testing"

func TestTelemetry(t *testing.T) {
	for text, want := range map[string]string{
		"{endpoint: 'https://collector.example.com:4318', ca: /etc/ca.pem, headers_file: /etc/h}": "",
		"{endpoint: 'http://127.0.0.1:4318/v1/traces'}":                                           "",
		"{endpoint: 'http://collector.example.com:4318'}":                                         "is not encrypted",
		"{endpoint: collector.example.com:4318}":                                                  "telemetry.otlp.endpoint",
		"{endpoint: 'https://u:p@collector.example.com'}":                                         "a user or a fragment",
		"{endpoint: 'https://collector.example.com', ca: ca.pem}":                                 "telemetry.otlp.ca",
		"{endpoint: 'https://collector.example.com', headers_file: h}":                            "telemetry.otlp.headers_file",
		"{headers_file: /etc/h}":                                                                  "need an endpoint",
		"{endpont: 'https://collector.example.com'}":                                              `did you mean "endpoint"`,
	} {
		checkRefused(t, "telemetry: {otlp: "+text+"}", want)
	}
	checkRefused(t, "air_gapped: true\ntelemetry: {otlp: {endpoint: 'https://collector.example.com'}}", "air_gapped forbids")
}
