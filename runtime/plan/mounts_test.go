package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func bindOn(source, target string) MountRequest {
	return MountRequest{Type: "bind", Source: source, Target: target}
}

// TestPlanMounts: a mount comes after the one that it lies in, and only then is it left to
// the daemon.
func TestPlanMounts(t *testing.T) {
	size := int64(1 << 20)
	r := CreateRequest{
		Workspace: &WorkspaceRequest{Dir: "/srv/a"},
		Mounts: []MountRequest{
			bindOn("/srv/a/.git", "/workspace/.git"), bindOn("/srv/data", "/data"),
			{Type: "tmpfs", Target: "/workspace/build", SizeBytes: &size}, {Type: "tmpfs", Target: "/scratch"},
		},
	}
	p, err := testPlanner().Sandbox(r)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range p.Mounts {
		got = append(got, fmt.Sprint(m.Target, " ", m.Point, " ", m.Size, " ", m.Nested))
	}
	want := []string{
		"/data mounts/1 0 false", fmt.Sprint("/scratch  ", p.Limits.TmpfsBytes, " false"), "/workspace workspace 0 false",
		"/workspace/.git mounts/0 0 true", "/workspace/build  1048576 true",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("mounts\n%s", strings.Join(got, "\n"))
	}
	if points := strings.Join(p.MountPoints(), " "); points != "data scratch" {
		t.Errorf("mount points %q", points)
	}
}

func TestPlanMountsRefuses(t *testing.T) {
	size, small := int64(1<<20), int64(1)
	many := make([]MountRequest, maxMounts+1)
	for i := range many {
		many[i] = MountRequest{Type: "tmpfs", Target: fmt.Sprint("/t", i)}
	}
	for name, tt := range map[string]struct {
		mounts []MountRequest
		code   sbxerr.Code
		want   string
	}{
		"root":               {[]MountRequest{bindOn("/srv/a", "/")}, sbxerr.Workspace, "the sandbox's own"},
		"proc":               {[]MountRequest{bindOn("/srv/a", "/proc/sys")}, sbxerr.Workspace, "own /proc"},
		"sys":                {[]MountRequest{bindOn("/srv/a", "/sys")}, sbxerr.Workspace, "own /sys"},
		"dev":                {[]MountRequest{bindOn("/srv/a", "/dev/shm")}, sbxerr.Workspace, "own /dev"},
		"caisson's":          {[]MountRequest{bindOn("/srv/a", "/run/caisson")}, sbxerr.Workspace, "own /run/caisson"},
		"in var/run":         {[]MountRequest{bindOn("/srv/a", "/var/run/caisson/x")}, sbxerr.Workspace, "own /run/caisson"},
		"var/run":            {[]MountRequest{bindOn("/srv/a", "/var/run")}, sbxerr.Workspace, "own /var/run"},
		"tmpfs on etc":       {[]MountRequest{{Type: "tmpfs", Target: "/etc"}}, sbxerr.Workspace, `"/etc" is the sandbox's own`},
		"resolvers":          {[]MountRequest{bindOn("/srv/a", "/etc/resolv.conf")}, sbxerr.Workspace, "the sandbox's own"},
		"programs":           {[]MountRequest{bindOn("/srv/a", "/usr/bin")}, sbxerr.Workspace, "the sandbox's own"},
		"behind a link":      {[]MountRequest{bindOn("/srv/a", "/sbin/x")}, sbxerr.Workspace, "own /sbin"},
		"relative":           {[]MountRequest{bindOn("/srv/a", "data")}, sbxerr.Workspace, "clean absolute"},
		"climbs":             {[]MountRequest{bindOn("/srv/a", "/data/../proc")}, sbxerr.Workspace, "clean absolute"},
		"source of the host": {[]MountRequest{bindOn("/etc", "/data")}, sbxerr.Workspace, "the host's /etc"},
		"keys":               {[]MountRequest{bindOn("/srv/a/.ssh", "/data")}, sbxerr.Workspace, "for keys"},
		"no source":          {[]MountRequest{bindOn("", "/data")}, sbxerr.Workspace, "clean absolute"},
		"volume of a path":   {[]MountRequest{{Type: "volume", Source: "/srv/a", Target: "/data"}}, sbxerr.Config, "letters, digits"},
		"volume of another":  {[]MountRequest{{Type: "volume", Source: "7+v", Target: "/data"}}, sbxerr.Config, "letters, digits"},
		"no volume":          {[]MountRequest{{Type: "volume", Target: "/data"}}, sbxerr.Config, "letters, digits"},
		"size of a volume":   {[]MountRequest{{Type: "volume", Source: "v", Target: "/data", SizeBytes: &size}}, sbxerr.Config, "for type tmpfs"},
		"read-only snapshot": {[]MountRequest{{Type: "snapshot", Source: "s", Target: "/data", ReadOnly: true}}, sbxerr.Config, "not with read-only"},
		"size of a snapshot": {[]MountRequest{{Type: "snapshot", Source: "s", Target: "/data", SizeBytes: &size}}, sbxerr.Config, "for type tmpfs"},
		"no type":            {[]MountRequest{{Target: "/data"}}, sbxerr.Config, "none of bind, volume, snapshot, tmpfs"},
		"twice":              {[]MountRequest{bindOn("/srv/a", "/data"), bindOn("/srv/b", "/data")}, sbxerr.Config, "two mounts"},
		"in a tmpfs":         {[]MountRequest{bindOn("/srv/a", "/data/x"), {Type: "tmpfs", Target: "/data"}}, sbxerr.Config, "lies in the tmpfs"},
		"size of a bind":     {[]MountRequest{{Type: "bind", Source: "/srv/a", Target: "/data", SizeBytes: &size}}, sbxerr.Config, "for type tmpfs"},
		"small":              {[]MountRequest{{Type: "tmpfs", Target: "/data", SizeBytes: &small}}, sbxerr.Limits, "tmpfs 1: give 64K to 1T"},
		"read-only tmpfs":    {[]MountRequest{{Type: "tmpfs", Target: "/data", ReadOnly: true}}, sbxerr.Config, "not read-only"},
		"too many":           {many, sbxerr.Config, "17 mounts are more than 16"},
	} {
		_, err := testPlanner().Sandbox(CreateRequest{Mounts: tt.mounts})
		if sbxerr.Of(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
