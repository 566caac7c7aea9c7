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
	if r := c.Profiles["agent"].Routes["up"]; r.CAFile() != "/etc/caisson/ca.pem" || c.SecretSources()["key"] != (SecretSource{SecretFile, "/etc/caisson/key"}) {
		t.Errorf("%+v, %v", r, c.SecretSources())
	}
	for change, want := range map[string]string{
		"credential: key=credential: kee":                                                                `profiles.agent.routes.up.credential: there is no secret "kee"`,
		"file:/etc/caisson/key=sk-secret-value":                                                          "secrets.key: is no reference to a file",
		"file:/etc/caisson/key=file:key":                                                                 "secrets.key: \"key\" is not a clean absolute path",
		"file:/etc/caisson/key=credential:a/key":                                                         "secrets.key: is no credential of systemd",
		"file:/etc/caisson/key=credential:..":                                                            "secrets.key: is no credential of systemd",
		"file:/etc/caisson/key=credential:":                                                              "secrets.key: is no credential of systemd",
		"file:/etc/caisson/key=env:A-KEY":                                                                "secrets.key: is no name of a variable",
		"file:/etc/caisson/key=command:pass show key":                                                    "secrets.key: \"pass\" is not a clean absolute path",
		"file:/etc/caisson/key=env:":                                                                     "secrets.key: is no name of a variable",
		"file:/etc/caisson/ca.pem=/etc/caisson/ca.pem":                                                   "profiles.agent.routes.up.ca: is no reference to a file",
		"secrets: {=secrets_refresh: 1ms\nsecrets: {":                                                    "secrets_refresh: 1ms is less than 1s",
		"ca: =models: {x: {upstream: \"https://x.example.com\"}}, ca: ":                                  "profiles.agent.routes.up.models: only requests of the presets openai and anthropic",
		"ca: =preset: openai, models: {x: {upstream: \"https://x.example.com\", credential: kee}}, ca: ": `profiles.agent.routes.up.models.x.credential: there is no secret "kee"`,
		"ca: =preset: openai, models: {x: {upstream: \"https://x.example.com\", fallbacks: [a]}}, ca: ":  "fallbacks",
		"ca: =client_key: kee, ca: ":                                                                     `profiles.agent.routes.up.client_key: there is no secret "kee"`,
		"ca: =client_cert: x, ca: ":                                                                      "profiles.agent.routes.up.client_cert: is no reference to a file",
		"credential: key=credentail: key":                                                                `did you mean "credential"?`,
		"      up: {=      up: {upstream: \"x\"}\n      up: {":                                           `mapping key "up" already defined`,
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
		for name, source := range c.SecretSources() {
			if strings.HasPrefix(source.From, "sk-") {
				t.Errorf("the secret %s is taken for a source", name)
			}
		}
	}
}

func TestSecretSources(t *testing.T) {
	for reference, want := range map[string]SecretSource{
		"credential:models-key": {SecretCredential, "models-key"}, "command:/usr/bin/pass show models": {SecretCommand, "/usr/bin/pass show models"},
		"env:MODELS_KEY": {SecretVariable, "MODELS_KEY"}, "file:/a:b": {SecretFile, "/a:b"},
	} {
		c, err := load(t, strings.Replace(routesFile, "file:/etc/caisson/key", reference, 1))
		if err == nil {
			err = c.Complete()
		}
		if got := c.SecretSources()["key"]; err != nil || got != want {
			t.Errorf("%q: %+v, %v", reference, got, err)
		}
	}
}

func TestParseRoute(t *testing.T) {
	c, err := load(t, routesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{preset: git, upstream: "https://git.example.com", credential: key, repositories: [acme/*], budget: {sandbox: {requests: 5}}}`,
		`{"upstream": "https://api.example.com", "methods": ["GET"]}`,
		"upstream: https://api.example.com\nprivate: true\n",
	} {
		if r, err := c.ParseRoute("own", text); err != nil || r.Upstream == "" {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for text, want := range map[string]string{
		"":                                  "route own: it says nothing",
		"x":                                 "route own: ",
		"{upstream: x, credential: other}":  `route own.credential: there is no secret "other"`,
		"{upstrem: x}":                      `did you mean "upstream"?`,
		"{upstream: x, on_request: true}":   "on_request is for routes of profiles",
		"{upstream: x}\n---\n{upstream: y}": "more than one document",
		strings.Repeat(" ", 20000):          "more than 16384",
		"{upstream: x, ca: /etc/ca.pem}":    "route own.ca: is no reference to a file",
	} {
		if _, err := c.ParseRoute("own", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: %v, want %q", text, err, want)
		}
	}
}
