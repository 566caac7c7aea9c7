package cli_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// Profiles are the daemon's, as its own refusal of an unknown one lists them.
func TestCompleteProfiles(t *testing.T) {
	profiles := plan.BuiltinProfiles()
	profiles["site"] = plan.Profile{}
	policy, err := peer.NewPolicy([]peer.Rule{{UIDs: []uint32{7}, Profiles: []string{"compat", "site"}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}})
	if err != nil {
		t.Fatal(err)
	}
	grant, err := policy.Grant(peer.User(7, 7, nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		refuse func(profile string) error
		want   string
	}{
		"root": {func(profile string) error {
			_, err := plan.LookupProfile(profiles, profile)
			return err
		}, "compat\ndebug\ndev\nsite\nstrict\n"},
		"a peer": {grant.CheckProfile, "strict\ncompat\nsite\n"},
	} {
		f := &servertest.Fake{OnSpec: func(r plan.Request) (*runtime.SpecView, error) { return nil, tt.refuse(r.Create.Profile) }}
		for _, args := range []string{"run", "image build", "policy explain", "policy learn"} {
			words := append(append([]string{"__complete"}, strings.Fields(args)...), "--profile", "")
			if _, stdout, stderr := invoke(t, f, "", words...); !strings.HasPrefix(stdout, tt.want) {
				t.Errorf("%s: %s: %q, %q", name, args, stdout, stderr)
			}
		}
	}
}

// Contexts are offered for the flag and for the commands that take one.
func TestCompleteContexts(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	if code, _, stderr := invoke(t, &servertest.Fake{}, "", "context", "create", "far", "--host", "ssh://ann@lab.example.com"); code != 0 {
		t.Fatal(stderr)
	}
	for _, line := range []string{"context use", "context rm", "ls --context"} {
		words := append(append([]string{"__complete"}, strings.Fields(line)...), "")
		if _, stdout, stderr := invoke(t, &servertest.Fake{}, "", words...); !strings.HasPrefix(stdout, "far\ndefault\n") {
			t.Errorf("%s: %q, %q", line, stdout, stderr)
		}
	}
}
