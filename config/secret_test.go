package config

import (
	"maps"
	"testing"
)

func TestParseSecret(t *testing.T) {
	for reference, want := range map[string]string{
		"file:/k": SecretFile, "credential:models": SecretCredential, "command:/bin/pass show x": SecretCommand,
		"file:k": "", "command:pass": "", "credential:../x": "", "env:KEY": "", "fd:3": "", "a-value": "", "": "",
	} {
		s, err := ParseSecret("key", reference)
		if (err == nil) != (want != "") || err == nil && s.Kind != want {
			t.Errorf("%q: %+v, %v", reference, s, err)
		}
	}
}

// Routes may use secrets that are kept beside the configuration, each of which counts once.
func TestKnownSecrets(t *testing.T) {
	c := Config{Secrets: map[string]string{"both": "file:/k"}, Profiles: map[string]Profile{"agent": {Routes: map[string]Route{"a": {Upstream: "https://a.example", Credential: "late"}}}}}
	if err := c.validateSecrets(); err == nil {
		t.Error("a secret that there is not is taken")
	}
	c.KnowSecrets(maps.Keys(map[string]string{"late": "", "both": ""}))
	if err := c.validateSecrets(); err != nil || c.CountSecrets() != 2 {
		t.Errorf("%v, %d", err, c.CountSecrets())
	}
}
