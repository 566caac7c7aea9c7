package views

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Message is m as JSON objects of the CLI: plain numbers, and no absent fields.
func Message(m protoreflect.Message) map[string]any {
	view := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsList():
			list := []any{}
			for i := range v.List().Len() {
				list = append(list, scalar(f, v.List().Get(i)))
			}
			view[name] = list
		default:
			view[name] = scalar(f, v)
		}
		return true
	})
	return view
}

func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Kind() != protoreflect.MessageKind {
		return v.Interface()
	}
	if t, ok := v.Message().Interface().(*timestamppb.Timestamp); ok {
		return t.AsTime()
	}
	return Message(v.Message())
}
