package doctor

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

func TestMountNamespace(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		name, own, first, pid string
		unread                error
		want                  runtime.Check
		says                  string
	}{
		{"a service", "mnt:[1]", "mnt:[1]", own, nil, runtime.Check{Status: OK}, "first process"},
		{"a service with its own", "mnt:[2]", "mnt:[1]", own, nil, runtime.Check{Status: Fail, Code: "SBX-105"}, "no sandbox would outlive a restart"},
		{"a container", "mnt:[2]", "mnt:[1]", "", nil, runtime.Check{Status: Warn, Code: "SBX-105"}, "mnt:[2]"},
		{"below another service", "mnt:[2]", "mnt:[1]", "1", nil, runtime.Check{Status: Warn, Code: "SBX-105"}, "mnt:[2]"},
		{"no right to look", "mnt:[2]", "", own, errors.New("permission denied"), runtime.Check{Status: Unknown, Code: "SBX-109"}, "permission denied"},
	} {
		found := judgeMounts(tt.own, tt.first, tt.unread, systemdStarted(tt.pid))
		if len(found) != 1 || found[0].Status != tt.want.Status || found[0].Code != tt.want.Code || !strings.Contains(found[0].Detail, tt.says) {
			t.Errorf("%s: %+v", tt.name, found)
			continue
		}
		if c := found[0]; c.Status != OK && c.Remedy == "" {
			t.Errorf("%s: no remedy", tt.name)
		}
		if err := Refusal(found); (err != nil) != (tt.want.Status == Fail) || err != nil && sbxerr.Of(err) != sbxerr.DaemonConf {
			t.Errorf("%s: refused with %v", tt.name, err)
		}
	}
}
