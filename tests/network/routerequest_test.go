package network

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A route on request is there for those sandboxes alone that name it, with the variables of its
// preset. A child gets those of its parent's that it names, which share the budget.
func TestRouteOnRequest(t *testing.T) {
	m := startModels(t)
	reaches(t, modelsAt, "web.example:80")
	asks(t, "models.example")
	key := writeFile(t, "key", canary+"\n")
	route := func(more string) string {
		return fmt.Sprintf(`{upstream: "https://models.example:8443/v1", credential: key, ca: "file:%s"%s}`, m.ca, more)
	}
	d := launch(t, strings.Replace(host.config(), "profiles:\n", fmt.Sprintf(`secrets: {key: "file:%s"}
profiles:
  team:
    nested: {enter: true, depth: 2}
    routes:
      plain: %s
      far: %s
      spare: %s
      forge: {preset: git, upstream: "https://models.example:8443/git", repositories: ["*"], on_request: true}
`, key, route(""), route(`, aliases: ["host.docker.internal:8430/proxy/v1", api.openai.com]`), route(", preset: openai, on_request: true, budget: {sandbox: {requests: 3}}")), 1))
	plain, spare := []string{"http", "http://plain.caisson.internal/models"}, []string{"http", "http://spare.caisson.internal/models"}
	const got = "200 GET /v1/models"

	without := createMaker(t, d)
	check(t, without.sandbox, []attempt{{"what each has", plain, got}, {"what it did not ask for", spare, gotNothing}})
	check(t, without.sandbox, []attempt{
		{"by an alias", []string{"http", "http://host.docker.internal:8430/proxy/v1/models"}, got},
		{"by another name", []string{"http", "http://api.openai.com/models"}, got},
		{"beside the path of the alias", []string{"http", "http://host.docker.internal:8430/proxy/v2/models"}, "403"},
		{"another port of an alias", []string{"http", "http://host.docker.internal:8431/proxy/v1/models"}, gotNothing},
		{"TLS to an alias", []string{"http", "https://api.openai.com/models"}, gotNothing},
	})
	if env := d.Run(t, "exec", without.id, "--", "env").Stdout; strings.Contains(env, "OPENAI_") || strings.Contains(env, "GIT_CONFIG") {
		t.Errorf("without the route: %s", env)
	}
	with := createMaker(t, d, "--route", "spare", "--route", "forge")
	check(t, with.sandbox, []attempt{{"beside it", plain, got}, {"what it asked for", spare, got}})
	env := d.Run(t, "exec", with.id, "--", "env").Stdout
	for _, want := range []string{"OPENAI_BASE_URL=http://spare.caisson.internal\n", "GIT_CONFIG_COUNT=3\n", "=https://models.example:8443/git/\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is not in %s", want, env)
		}
	}
	if routes := d.Run(t, "inspect", with.id).Stdout; !strings.Contains(strings.Join(strings.Fields(routes), ""), `"routes":["far","forge","plain","spare"]`) {
		t.Errorf("inspect says %s", routes)
	}
	if rules := d.Run(t, "spec", "--profile", "team", "--route", "spare", "--", "true").Stdout; !strings.Contains(rules, `route spare: leads http://spare.caisson.internal to https://models.example:8443/v1 with the credential "key"`) {
		t.Errorf("spec says %s", rules)
	}
	for name, flags := range map[string][]string{
		"another":            {"--profile", "team", "--route", "other"},
		"of another profile": {"--route", "spare"},
		"spare":              {"--profile", "ready", "--route", "spare"},
	} {
		if f := d.Refused(t, "SBX-408", append([]string{"create", "-o", "json"}, flags...)...); name == "another" && !strings.Contains(f.Error.Remedy, `["forge" "spare"]`) {
			t.Errorf("the remedy is %q", f.Error.Remedy)
		}
	}
	d.Refused(t, "SBX-404", "create", "-o", "json", "--profile", "team", "--network", "none", "--route", "spare")

	part := with.child(t, "--route", "spare", "--nested", "-m", "128M")
	check(t, part.sandbox, []attempt{{"the child's", spare, got}, {"not the child's", plain, gotNothing}})
	if env := with.caisson("exec", part.id, "--", "env").Stdout; !strings.Contains(env, "OPENAI_BASE_URL=http://spare.caisson.internal\n") {
		t.Errorf("the child has %s", env)
	}
	below := part.child(t, "--route", "spare", "-m", "32M", "--cpus", "0.1")
	check(t, below.sandbox, []attempt{{"its child's", spare, got}, {"past the budget of the three", spare, "429"}})
	check(t, with.sandbox, []attempt{{"the parent, past the budget", spare, "429"}, {"the parent, by the other", plain, got}})
	with.caisson(making("--route", "spare", "--route", "other")...).Refused(t, "SBX-406")
	without.caisson(making("--route", "spare")...).Refused(t, "SBX-406")
	part.caisson(making("--route", "plain", "-m", "32M", "--cpus", "0.1")...).Refused(t, "SBX-406")
	d.Run(t, "update", "--allow", "web.example", with.id)
	check(t, with.sandbox, []attempt{{"after an update", spare, "429"}, {"the new rule", web, gotWeb}})
	time.Sleep(1100 * time.Millisecond) // until what was counted is written
	d.Kill(t)
	d.Launch(t)
	check(t, with.sandbox, []attempt{{"after another daemon", spare, "429"}, {"what each has, after another daemon", plain, got}})
	check(t, without.sandbox, []attempt{{"not asked for, after another daemon", spare, gotNothing}})
}

// A request of root's gives a route whole, with a secret of the daemon's. It outlives daemons,
// children get it by name, and a fork has it. Nobody else gives one.
func TestRouteOfOneSandbox(t *testing.T) {
	m := startModels(t)
	reaches(t, modelsAt)
	asks(t, "models.example")
	d := launch(t, strings.Replace(host.config(), "profiles:\n", `peers: [{uids: [12345], profiles: [team, offers]}]
profiles:
  team:
    nested: {enter: true}
  offers:
    routes:
      spare: {preset: openai, on_request: true, upstream: "https://models.example:8443/v1", ca: "file:`+m.ca+`"}
`, 1))
	d.Run(t, "secret", "set", "theirs", "--from", "file:"+writeFile(t, "key", canary+"\n"))
	whole := fmt.Sprintf(`forge={preset: anthropic, placement: bearer, upstream: "https://models.example:8443/v1", credential: theirs, ca: "file:%s", methods: [GET]}`, m.ca)
	get, put := []string{"http", "http://forge.caisson.internal/models"}, []string{"http", "http://other.caisson.internal/models"}
	const got = "200 GET /v1/models"

	s := createMaker(t, d, "--route", whole)
	check(t, s.sandbox, []attempt{{"by the route", get, got}, {"by another", put, gotNothing}})
	for _, r := range m.take() {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			t.Errorf("the upstream was asked with %q", r.Header.Get("Authorization"))
		}
	}
	env := d.Run(t, "exec", s.id, "--", "env").Stdout
	if !strings.Contains(env, "ANTHROPIC_BASE_URL=http://forge.caisson.internal\n") || strings.Contains(env, canary) {
		t.Errorf("the environment is %s", env)
	}
	if info := strings.Join(strings.Fields(d.Run(t, "inspect", s.id).Stdout), ""); !strings.Contains(info, `"routes":["forge"]`) {
		t.Errorf("inspect says %s", info)
	}
	child := s.child(t, "--route", "forge", "-m", "64M")
	check(t, child.sandbox, []attempt{{"the child's", get, got}})
	if env := s.caisson("exec", child.id, "--", "env").Stdout; !strings.Contains(env, "ANTHROPIC_BASE_URL=http://forge.caisson.internal\n") {
		t.Errorf("the child has %s", env)
	}
	s.caisson(making("--route", whole)...).Refused(t, "SBX-805")
	d.Run(t, "update", "--allow", "web.example", s.id)
	check(t, s.sandbox, []attempt{{"after an update", get, got}})
	d.Kill(t)
	d.Launch(t)
	check(t, s.sandbox, []attempt{{"after another daemon", get, got}})

	for says, route := range map[string]string{
		`there is no secret "mine"`:         `forge={upstream: "https://models.example", credential: mine}`,
		"did you mean":                      `forge={upstrem: "https://models.example"}`,
		"is no URL with https or http":      `forge={upstream: "models.example"}`,
		"there is a route \"spare\"":        `spare={upstream: "https://models.example"}`,
		"on_request is for":                 `forge={upstream: "https://models.example", on_request: true}`,
		"holds credentials, which anyone":   `forge={upstream: "https://a:b@models.example"}`,
		"there is no preset \"x\", only":    `forge={preset: x, upstream: "https://models.example"}`,
		"route \"Forge\": its name is none": `Forge={upstream: "https://models.example"}`,
	} {
		if f := d.Refused(t, "SBX-404", "create", "-o", "json", "--profile", "offers", "--route", route); !strings.Contains(f.Error.Message, strings.ReplaceAll(says, "its name is none", "its name is not one label")) {
			t.Errorf("%s: %s", says, f.Error.Message)
		}
	}
	bound := d.User(t, 12345)
	bound.Refused(t, "SBX-805", "create", "-o", "json", "--profile", "team", "--route", whole)
	id := strings.TrimSpace(bound.Run(t, "create", "--profile", "offers", "--route", "spare").Stdout) // without peers.network
	if out := bound.Run(t, "exec", id, "--", "wget", "-q", "-O", "-", "http://spare.caisson.internal/models").Stdout; !strings.HasPrefix(out, "GET /v1/models with") {
		t.Errorf("a user by a route of its profile: %q", out)
	}
	bound.Run(t, "rm", "-f", id)
	d.Run(t, "secret", "rm", "theirs")
	check(t, s.sandbox, []attempt{{"without the secret", get, "502"}})
}
