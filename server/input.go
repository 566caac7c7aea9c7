package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
)

// SendInput implements ExecServiceHandler.
func (s execs) SendInput(ctx context.Context, r *connect.Request[caissonv1.SendInputRequest]) (*connect.Response[caissonv1.SendInputResponse], error) {
	if err := checkInput(r.Msg); err != nil {
		return nil, fail(err)
	}
	state, err := s.runtime.SendInput(ctx, r.Msg.Ref, r.Msg.Id, inputOf(r.Msg))
	return reply(inputPB(state), err)
}

// StreamInput implements ExecServiceHandler.
func (s execs) StreamInput(ctx context.Context, stream *connect.ClientStream[caissonv1.SendInputRequest]) (*connect.Response[caissonv1.SendInputResponse], error) {
	m, err := firstOf(stream)
	if err == nil {
		err = checkInput(m)
	}
	if err != nil {
		return nil, fail(err)
	}
	in := inputStream{execs: s.runtime, ref: m.Ref, id: m.Id}
	for {
		state, err := in.send(ctx, m)
		if err != nil {
			return nil, fail(err)
		}
		if !stream.Receive() {
			if err := stream.Err(); err != nil {
				return nil, fail(receiveError(err))
			}
			return reply(inputPB(state), nil)
		}
		m = stream.Msg()
		if m.Ref != "" || m.Id != "" {
			return nil, fail(sbxerr.New(sbxerr.APIUsage, "server.input", "ref and id belong into the first message alone"))
		}
	}
}

// inputStream counts the offset of a message on for those after it. So bytes that the command has
// are not sent twice, in whichever messages of a repeated stream they come.
type inputStream struct {
	execs   Execs
	ref, id string
	offset  *int64 // of the next message; nil: after the bytes that the command has
	state   runtime.InputState
}

// send sends one message. What comes after the end of the input is dropped.
func (i *inputStream) send(ctx context.Context, m *caissonv1.SendInputRequest) (runtime.InputState, error) {
	if i.state.Closed {
		return i.state, nil
	}
	if m.Offset != nil {
		i.offset = m.Offset
	}
	state, err := i.execs.SendInput(ctx, i.ref, i.id, runtime.InputRequest{Offset: i.offset, Data: m.Data, Close: m.Close})
	if i.offset != nil {
		next := *i.offset + int64(len(m.Data))
		i.offset = &next
	}
	i.state = state
	return state, err
}

func checkInput(m *caissonv1.SendInputRequest) error {
	err := errors.Join(checkRef("ref", m.Ref), checkRef("id", m.Id))
	if m.Offset != nil {
		err = errors.Join(err, checkOffset("offset", *m.Offset))
	}
	return err
}

func inputOf(m *caissonv1.SendInputRequest) runtime.InputRequest {
	return runtime.InputRequest{Offset: m.Offset, Data: m.Data, Close: m.Close}
}

func inputPB(s runtime.InputState) *caissonv1.SendInputResponse {
	return &caissonv1.SendInputResponse{Offset: s.Offset, Closed: s.Closed}
}
