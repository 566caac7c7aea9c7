package runtime

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

func TestRecordsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	ttl := time.Hour
	want := record{
		Version: recordVersion, Boot: "b", ID: newID(), Name: "n", User: plan.User{UID: 7, GID: 8, Groups: []uint32{9}}, Env: []string{"A=1"},
		CreatedAt: time.Unix(5, 6).UTC(), Labels: map[string]string{"k": "v"}, Workspace: &plan.WorkspaceRequest{Dir: "/srv/w", Mode: "ro"},
		Limits: plan.DefaultLimits(), Settings: plan.CreateRequest{Name: "n", TTL: &ttl}, Expires: 77, Main: 1, MainArgs: []string{"true"}, Ready: true,
	}
	if err := writeRecord(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(path, "b")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func TestRecordsAreNotGuessedAt(t *testing.T) {
	good := `{"version":6,"boot":"b","id":"` + newID() + `"}`
	for name, content := range map[string]string{
		"empty": "", "torn": good[:len(good)/2], "another boot": `{"version":6,"boot":"c","id":"` + newID() + `"}`,
		"another version": `{"version":1,"boot":"b","id":"` + newID() + `"}`, "no ID": `{"version":6,"boot":"b","id":"../x"}`, "not a record": "[]",
	} {
		path := filepath.Join(t.TempDir(), "record.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := readRecord(path, "b"); sbxerr.Of(err) != sbxerr.StateDir {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for _, control := range []string{good, strings.Replace(good, `"version":6`, `"version":7`, 1)} {
		path := filepath.Join(t.TempDir(), "record.json")
		if err := os.WriteFile(path, []byte(control), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readRecord(path, "b"); err != nil {
			t.Error(err)
		}
	}
}

// TestNewRecord: what the request says is kept, and of the image what it is found by.
func TestNewRecord(t *testing.T) {
	p := &plan.Sandbox{ID: "i", Request: plan.CreateRequest{Labels: map[string]string{"team": "red"}}, Image: images.Stored{ChainID: "chain-t"}}
	r := newRecord(p, "boot", time.Unix(9, 0))
	if r.Labels["team"] != "red" || r.ID != p.ID || r.ChainID != "chain-t" || r.Boot != "boot" || r.Version != recordVersion {
		t.Errorf("record %+v", r)
	}
}

func TestNewID(t *testing.T) {
	a, b := newID(), newID()
	if a == b || !idForm.MatchString(a) || !idForm.MatchString(b) {
		t.Errorf("ids %q, %q", a, b)
	}
}
