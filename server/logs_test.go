package server_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// speaks is a command of which the first word came at a time, and of the last nobody
// knows when.
func speaks(at time.Time) *servertest.Fake {
	return &servertest.Fake{OnLogs: func(_ context.Context, _ string, o runtime.LogOptions, stdout, _ io.Writer) error {
		if p, ok := stdout.(runtime.Placer); ok {
			if err := p.Place(o.StdoutOffset+o.Since.Unix()-at.Unix()+7, at.Add(time.Millisecond)); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(stdout, "ü one\n\xc3"); err != nil {
			return err
		}
		if p, ok := stdout.(runtime.Placer); ok {
			if err := p.Place(o.StdoutOffset+o.Since.Unix()-at.Unix()+15, time.Time{}); err != nil {
				return err
			}
		}
		_, err := io.WriteString(stdout, "two\n")
		return err
	}}
}

// TestLogsInTime: over plain HTTP the parts of the output have their times, where they
// are asked for.
func TestLogsInTime(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	socket := servertest.Listen(t, speaks(at))
	for query, want := range map[string][]string{
		"": {`{"stdout":{"text":"ü one\n"}}`, `{"stdout":{"offset":7,"data":"ww=="}}`, `{"stdout":{"offset":8,"text":"two\n"}}`},
		"since=2026-01-02T15:04:05Z": {
			`{"stdout":{"offset":7,"text":"ü one\n"}}`, `{"stdout":{"offset":14,"data":"ww=="}}`, `{"stdout":{"offset":15,"text":"two\n"}}`,
		},
		"timestamps&since=2026-01-02T16:04:06%2B01:00&stdout_offset=2": {
			`{"stdout":{"offset":10,"text":"ü one\n","time":"2026-01-02T15:04:05.001Z"}}`,
			`{"stdout":{"offset":17,"data":"ww==","time":"2026-01-02T15:04:05.001Z"}}`, `{"stdout":{"offset":18,"text":"two\n"}}`,
		},
	} {
		got := strings.Split(strings.TrimSpace(whole(t, plain(t, socket, "GET", "/v1/sandboxes/a/logs?"+query, ""))), "\n")
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", query, got, want)
		}
	}
	for query, want := range map[string]string{
		"since=10m": `since is \"10m\": give a time such as 2026-01-02T15:04:05Z`, "since=2026-01-02T15:04:05Z&since=2026-01-02T15:04:05Z": "given twice",
		"timestamps=x": "true or false", "since=2026-01-02T15:04:05Z&until=2026-01-02T15:04:04Z": "until 2026-01-02T15:04:04Z is before since 2026-01-02T15:04:05Z",
	} {
		if res := plain(t, socket, "GET", "/v1/sandboxes/a/logs?"+query, ""); res.StatusCode != 400 {
			t.Errorf("%s: %s", query, res.Status)
		} else if body := whole(t, res); !strings.Contains(body, want) {
			t.Errorf("%s: %s", query, body)
		}
	}
	// A browser sends the first URL again, and the offsets that it has.
	res := plain(t, socket, "GET", "/v1/sandboxes/a/logs?since=2026-01-02T15:04:05Z", "", "Accept", "text/event-stream", "Last-Event-ID", "4.0")
	if body := whole(t, res); !strings.Contains(body, "id: 18.0\n") {
		t.Errorf("gone on with %s", body)
	}
}

// placing tells what a writer of the client hears.
type placing struct{ heard []string }

func (p *placing) Place(offset int64, came time.Time) error {
	p.heard = append(p.heard, fmt.Sprint(offset, " ", came.IsZero(), " ", came.UnixMilli()))
	return nil
}

func (p *placing) Write(b []byte) (int, error) {
	p.heard = append(p.heard, string(b))
	return len(b), nil
}

func TestClientLogsInTime(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	c := dial(t, speaks(at))
	var got placing
	if err := c.Logs(t.Context(), &caissonv1.LogsRequest{Ref: "a", Timestamps: true, Since: timestamppb.New(at)}, &got, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"7 false 1700000000001", "ü one\n\xc3", fmt.Sprint("15 true ", time.Time{}.UnixMilli()), "two\n"}; !slices.Equal(got.heard, want) {
		t.Errorf("got %q, want %q", got.heard, want)
	}
	err := c.Logs(t.Context(), &caissonv1.LogsRequest{Ref: "a", Since: &timestamppb.Timestamp{Nanos: -1}}, nil, nil)
	if got := sbxerr.Of(err); got != sbxerr.Config {
		t.Errorf("no time: %v", err)
	}
}
