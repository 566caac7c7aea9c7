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
      spare: %s
      forge: {preset: git, upstream: "https://models.example:8443/git", repositories: ["*"], on_request: true}
`, key, route(""), route(", preset: openai, on_request: true, budget: {sandbox: {requests: 3}}")), 1))
	plain, spare := []string{"http", "http://plain.caisson.internal/models"}, []string{"http", "http://spare.caisson.internal/models"}
	const got = "200 GET /v1/models"

	without := createMaker(t, d)
	check(t, without.sandbox, []attempt{{"what each has", plain, got}, {"what it did not ask for", spare, gotNothing}})
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
	if routes := d.Run(t, "inspect", with.id).Stdout; !strings.Contains(strings.Join(strings.Fields(routes), ""), `"routes":["forge","plain","spare"]`) {
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
