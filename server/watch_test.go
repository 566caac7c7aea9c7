package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/server/servertest"
)

// fill gives every field of v a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint16, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

// Every field of an event reaches callers, under the name that the audit log has.
func TestEventsHaveAllFields(t *testing.T) {
	var d events.Data
	fill(reflect.ValueOf(&d).Elem())
	e := &events.Event{ID: "b1-1", Source: "//host/caisson", Type: events.ExecEnded, Time: time.Unix(1, 0).UTC(), Data: d}
	socket := servertest.Listen(t, &servertest.Fake{OnEvents: func(events.Since, events.Filter, bool) ([]*events.Event, error) {
		return []*events.Event{e}, nil
	}})
	client := api.Dial(socket)
	defer client.Close()
	var got []*caissonv1.Event
	if err := client.Watch(t.Context(), &caissonv1.WatchRequest{}, func(e *caissonv1.Event) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Id != "b1-1" || got[0].Type != "run.caisson.exec.ended" || got[0].Subject != "sandboxes/x/execs/x" || got[0].Specversion != "1.0" {
		t.Fatalf("got %v", got)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(got[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var wire, file map[string]any
	if err := json.Unmarshal(text, &wire); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(recorded, &file); err != nil {
		t.Fatal(err)
	}
	for name := range file {
		if _, there := wire[name]; !there {
			t.Errorf("the field %s is not sent", name)
		}
	}
	if fields := got[0].Data.ProtoReflect().Descriptor().Fields().Len(); fields != len(file) {
		t.Errorf("the message has %d fields, an event %d", fields, len(file))
	}
}

func TestWatchOverPlainHTTP(t *testing.T) {
	var since events.Since
	socket := servertest.Listen(t, &servertest.Fake{OnEvents: func(s events.Since, f events.Filter, follow bool) ([]*events.Event, error) {
		since = s
		if !follow || len(f["type"]) != 2 {
			t.Errorf("filter %v, follow %v", f, follow)
		}
		return []*events.Event{{ID: "b1-8", Type: events.EngineUp, Time: time.Unix(1, 0)}, {Type: events.Lost, Time: time.Unix(1, 0), Data: events.Data{Lost: 3}}}, nil
	}})
	url := "/v1/events?follow=true&since=b1-7&filter=type%3Dengine.*&filter=type%3Dexec.*"
	status, body := told(t, socket, url)
	if status != http.StatusOK || !strings.HasPrefix(body, `{"specversion":"1.0","id":"b1-8",`) || strings.Contains(body, "subject") || strings.Count(body, "\n") != 2 {
		t.Errorf("%d %s", status, body)
	}
	want, _ := events.ParseSince("b1-7", time.Now())
	if since != want {
		t.Errorf("since %v", since)
	}
	_, body = told(t, socket, url, "Accept", "text/event-stream", "Last-Event-Id", "b1-9")
	if !strings.HasPrefix(body, "id: b1-8\ndata: {") || strings.Count(body, "id: b1") != 1 {
		t.Errorf("server-sent events: %s", body)
	}
	if want, _ = events.ParseSince("b1-9", time.Now()); since != want {
		t.Errorf("resumed at %v", since)
	}
	for query, code := range map[string]sbxerr.Code{"since=tomorrow": sbxerr.APIUsage, "filter=typ%3Dx": sbxerr.EventsFilter} {
		if status, body := told(t, socket, "/v1/events?"+query); status != http.StatusBadRequest || !strings.Contains(body, string(code)) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

// told returns the whole answer to a GET.
func told(t *testing.T, socket, path string, header ...string) (status int, body string) {
	t.Helper()
	res := plain(t, socket, http.MethodGet, path, "", header...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
