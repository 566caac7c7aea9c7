package api

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// whole makes a call for a list. Unless the request has a limit, the answer has all pages.
func whole[Req, Res any](ctx context.Context, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	all, ask := new(Res), proto.Clone(any(req).(proto.Message))
	limit := ask.(interface{ GetLimit() int32 }).GetLimit()
	for {
		answer, err := call(ctx, method, any(ask).(*Req))
		if err != nil {
			return nil, err
		}
		next := any(answer).(interface{ GetNext() string }).GetNext()
		proto.Merge(any(all).(proto.Message), any(answer).(proto.Message)) // which joins lists
		setNext(any(all).(proto.Message), next)
		if next == "" || limit != 0 {
			return all, nil
		}
		setNext(ask, next)
	}
}

func setNext(m proto.Message, next string) {
	r := m.ProtoReflect()
	r.Set(r.Descriptor().Fields().ByName("next"), protoreflect.ValueOfString(next))
}
