package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/seccomp"
)

func TestJudgeInForce(t *testing.T) {
	some := func() (string, error) { return "2.5.4", nil }
	none := func() (string, error) { return "", sbxerr.New(sbxerr.Seccomp, "test", "no libseccomp") }
	for _, tt := range []struct {
		name       string
		unreadable error
		library    func() (string, error)
		status     string
		remedy     string
	}{
		{"all is there", nil, some, OK, ""},
		{"filters cannot be read", errors.New("a filter of its own"), some, Fail, "SystemCallFilter="},
		{"built without libseccomp", nil, none, Fail, "caissond of this installation"},
	} {
		found := judgeInForce(tt.unreadable, tt.library)
		if len(found) != 1 || found[0].Status != tt.status || !strings.Contains(found[0].Remedy, tt.remedy) {
			t.Errorf("%s: %+v", tt.name, found)
		}
		if tt.status == Fail && found[0].Code != string(sbxerr.SeccompUnread) {
			t.Errorf("%s: code %s", tt.name, found[0].Code)
		}
	}
}

// runc and the daemon must know the same system calls.
func TestJudgeLibrary(t *testing.T) {
	own, err := seccomp.Library()
	if err != nil {
		t.Skip(err) // built without cgo: judgeInForce refuses that
	}
	for version, want := range map[string]string{own: OK, "": OK, "9.9.9": Warn} {
		found := judgeLibrary("runc seccomp", version)
		if c := found[0]; c.Status != want || want == Warn && (c.Code == "" || c.Remedy == "") {
			t.Errorf("libseccomp %q: %+v, want %s", version, c, want)
		}
	}
}
