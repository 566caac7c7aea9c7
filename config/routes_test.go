package config

import (
	"strings"
	"testing"
)

const routesFile = `secrets: {key: "file:/etc/caisson/key"}
profiles:
  agent:
    routes:
      up: {upstream: "https://api.example.com", credential: key, ca: "file:/etc/caisson/ca.pem"}
`

func TestRoutes(t *testing.T) {
	c, err := load(t, routesFile)
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Profiles["agent"].Routes["up"]; r.CAFile() != "/etc/caisson/ca.pem" || c.SecretFiles()["key"] != "/etc/caisson/key" {
		t.Errorf("%+v, %v", r, c.SecretFiles())
	}
	for change, want := range map[string]string{
		"credential: key=credential: kee":                      `profiles.agent.routes.up.credential: there is no secret "kee"`,
		"file:/etc/caisson/key=sk-secret-value":                "secrets.key: is no reference to a file",
		"file:/etc/caisson/key=file:key":                       "secrets.key: \"key\" is not a clean absolute path",
		"file:/etc/caisson/ca.pem=/etc/caisson/ca.pem":         "profiles.agent.routes.up.ca: is no reference to a file",
		"credential: key=credentail: key":                      `did you mean "credential"?`,
		"      up: {=      up: {upstream: \"x\"}\n      up: {": `mapping key "up" already defined`,
	} {
		from, to, _ := strings.Cut(change, "=")
		if !strings.Contains(routesFile, from) {
			t.Fatalf("%q is not there", from)
		}
		c, err := load(t, strings.Replace(routesFile, from, to, 1))
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%q: %v, want %q", change, err, want)
		}
		for name, path := range c.SecretFiles() {
			if strings.HasPrefix(path, "sk-") {
				t.Errorf("the secret %s is taken for a file", name)
			}
		}
	}
}
