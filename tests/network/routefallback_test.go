package network

import (
	"fmt"
	"strings"
	"testing"
)

// Where the first upstream of a route is not there, the next one gets the request and the key.
func TestRouteFallback(t *testing.T) {
	m := startModels(t)
	reaches(t, modelsAt, elsewhere+":9443")
	asks(t, "models.example", "gone.example")
	host.dns.set("gone.example", elsewhere)
	t.Cleanup(func() { host.dns.forget("gone.example") })
	config := func(fallbacks string) string {
		return strings.Replace(host.config(), "profiles:\n", fmt.Sprintf(`secrets: {key: "file:%s"}
profiles:
  agent:
    routes:
      models: {upstream: "https://gone.example:9443/v0"%s, credential: key, ca: "file:%s"}
`, writeFile(t, "key", canary+"\n"), fallbacks, m.ca), 1)
	}
	d := launch(t, config(`, fallbacks: ["https://models.example:8443/v1"]`))
	ask := []string{"http", "http://models.caisson.internal/models"}
	s := createFor(t, d, "--profile", "agent")
	check(t, s, []attempt{{"the next one", ask, "200 GET /v1/models with Bearer " + strings.Repeat("*", len(canary))}})
	if seen := m.take(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+canary {
		t.Errorf("the upstream was asked %+v", seen)
	}
	all := requests(s.recorded(t, func(list []entry) bool { return len(requests(list)) > 0 }))
	if len(all) != 1 || !strings.Contains(all[0].Reason, "answered by models.example:8443") {
		t.Errorf("%+v", all)
	}
	d.Configure(t, config(""))
	d.Run(t, "config", "reload")
	check(t, createFor(t, d, "--profile", "agent"), []attempt{{"the control: without a fallback", ask, "502"}})
	d.Configure(t, config(`, fallbacks: ["https://a b"]`))
	if r := d.Try("config", "reload"); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, `profiles.agent.routes.models: route "models": its upstream "https://a b"`) {
		t.Errorf("%+v", r)
	}
	d.Configure(t, config(""))
	d.Run(t, "config", "reload")
}
