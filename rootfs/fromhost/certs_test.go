package fromhost

import "testing"

func TestCheckCertificates(t *testing.T) {
	ca, key := certificate(t, true)
	leaf, _ := certificate(t, false)
	tests := []struct {
		name, data string
		single, ok bool
	}{
		{"authority", ca, true, true},
		{"bundle", "# comment\n" + ca + leaf, false, true},
		{"a host's own", leaf, true, false},
		{"key", key, false, false},
		{"certificate and key", ca + key, false, false},
		{"encrypted key", ca + "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", false, false},
		{"request", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", false, false},
		{"broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", true, false},
		{"nothing", "", false, false},
	}
	for _, tc := range tests {
		if err := checkCertificates([]byte(tc.data), tc.single); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
