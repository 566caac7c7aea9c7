package api

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// EventsLost is the type of an event that stands for those that a reader did not get.
const EventsLost = "run.caisson.events.lost"

// Watch calls yield with each event that req asks for, the oldest first, and with follow
// goes on until ctx ends or yield returns an error. The ID of the last event is where
// another call goes on, and where this one does if the daemon restarts. If events may be
// missing then, one of the type EventsLost says so.
func (c *Client) Watch(ctx context.Context, req *caissonv1.WatchRequest, yield func(*caissonv1.Event) error) error {
	req = proto.CloneOf(req)
	var last string // the ID after which another call goes on
	var again bool
	lost := func() error { return yield(lostEvents()) }
	for {
		err := resumed(ctx, c.retry(), c.events().Watch, req, func() error {
			again = true
			if last == "" {
				return lost()
			}
			return nil
		}, func(e *caissonv1.Event) error {
			if e.Id != "" {
				last, req.Since = e.Id, e.Id
			}
			return yield(e)
		})
		if !again || last == "" || !errors.Is(err, sbxerr.EventsGone) {
			return err
		}
		last, req.Since = "", "" // the new daemon's first
		if err := lost(); err != nil {
			return err
		}
	}
}

func lostEvents() *caissonv1.Event {
	return &caissonv1.Event{
		Specversion: "1.0", Type: EventsLost, Time: timestamppb.Now(),
		Data: &caissonv1.EventData{Message: "the connection to the daemon broke: events may be missing"},
	}
}
