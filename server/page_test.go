package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// fleet has n sandboxes, of which each two are made at once, the newest first.
func fleet(n int) []runtime.Info {
	var list []runtime.Info
	for i := n - 1; i >= 0; i-- {
		list = append(list, runtime.Info{ID: fmt.Sprintf("id%04d", i), CreatedAt: time.Unix(int64(i/2), 0), Labels: map[string]string{"even": fmt.Sprint(i%2 == 0)}})
	}
	return list
}

// ids asks for a page and returns its sandboxes and the cursor.
func ids(t *testing.T, socket, query string) (list []string, next string) {
	t.Helper()
	var answer struct {
		Sandboxes []struct{ ID string }
		Next      string
	}
	text := whole(t, plain(t, socket, "GET", "/v1/sandboxes?"+query, ""))
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, s := range answer.Sandboxes {
		list = append(list, s.ID)
	}
	return list, answer.Next
}

// TestPages: each entry comes once, whatever comes and goes between two pages.
func TestPages(t *testing.T) {
	f := &servertest.Fake{Infos: fleet(5)}
	socket := servertest.Listen(t, f)
	first, next := ids(t, socket, "limit=2")
	if want := []string{"id0000", "id0001"}; !slices.Equal(first, want) || next == "" {
		t.Fatalf("got %q, %q", first, next)
	}
	f.Infos = append(fleet(6)[:4], runtime.Info{ID: "id", CreatedAt: time.Unix(-1, 0)}) // those of the first page go, one comes at each end
	second, after := ids(t, socket, "limit=3&next="+next)
	if want := []string{"id0002", "id0003", "id0004"}; !slices.Equal(second, want) {
		t.Errorf("got %q", second)
	}
	if last, end := ids(t, socket, "limit=3&next="+after); !slices.Equal(last, []string{"id0005"}) || end != "" {
		t.Errorf("got %q, %q", last, end)
	}
	if all, end := ids(t, socket, "limit=5"); len(all) != 5 || end != "" {
		t.Errorf("a page that is full and the last: got %q, %q", all, end)
	}
	f.Infos = fleet(5)
	if few, _ := ids(t, socket, "limit=2&labels=even%3Dtrue"); !slices.Equal(few, []string{"id0000", "id0002"}) {
		t.Errorf("with a filter: got %q", few)
	}
}

func TestPagesRefuse(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{Infos: fleet(3)})
	_, next := ids(t, socket, "limit=1")
	for path, want := range map[string]string{
		"/v1/sandboxes?limit=-1":            `limit is -1`,
		"/v1/sandboxes?limit=1001":          `give 1 to 1000`,
		"/v1/sandboxes?next=x":              `next is \"x\", which is no cursor of this list`,
		"/v1/sandboxes?next=c2FuZGJveGVzIA": `leave it out to begin again`, // without a key
		"/v1/volumes?next=" + next:          `which is no cursor of this list`,
		"/v1/images?next=" + next:           `which is no cursor of this list`,
		"/v1/images?limit=1001":             `limit is 1001`,
	} {
		res := plain(t, socket, "GET", path, "")
		if answer := whole(t, res); res.StatusCode != 400 || !strings.Contains(answer, want) || !strings.Contains(answer, `"code":"SBX-101"`) {
			t.Errorf("%s: %s %s", path, res.Status, answer)
		}
	}
}

// TestClientListsAll: the client has all pages, unless its caller asks for one.
func TestClientListsAll(t *testing.T) {
	c := api.Dial(servertest.Listen(t, &servertest.Fake{Infos: fleet(2500)}))
	defer c.Close()
	all, err := c.List(t.Context(), &caissonv1.ListRequest{})
	if err != nil || len(all.Sandboxes) != 2500 || all.Next != "" || all.Sandboxes[2499].Id != "id2499" {
		t.Errorf("%d sandboxes, %v", len(all.GetSandboxes()), err)
	}
	page, err := c.List(t.Context(), &caissonv1.ListRequest{Limit: 10})
	if err != nil || len(page.Sandboxes) != 10 || page.Next == "" {
		t.Errorf("%d sandboxes, %v", len(page.GetSandboxes()), err)
	}
}
