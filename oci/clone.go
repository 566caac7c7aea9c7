package oci

import "reflect"

// clone returns a copy of v that shares nothing with it, so that a caller's
// later change cannot reach a specification that was already checked. It is
// for the plain data of runtime-spec: exported fields, no cycles.
func clone[T any](v T) T {
	src := reflect.ValueOf(&v).Elem()
	dst := reflect.New(src.Type()).Elem()
	cloneInto(dst, src)
	return dst.Interface().(T)
}

func cloneInto(dst, src reflect.Value) {
	switch src.Kind() {
	case reflect.Pointer:
		if !src.IsNil() {
			dst.Set(reflect.New(src.Type().Elem()))
			cloneInto(dst.Elem(), src.Elem())
		}
	case reflect.Slice:
		if !src.IsNil() {
			dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
			for i := range src.Len() {
				cloneInto(dst.Index(i), src.Index(i))
			}
		}
	case reflect.Map:
		if !src.IsNil() {
			dst.Set(reflect.MakeMapWithSize(src.Type(), src.Len()))
			for it := src.MapRange(); it.Next(); {
				value := reflect.New(src.Type().Elem()).Elem()
				cloneInto(value, it.Value())
				dst.SetMapIndex(it.Key(), value)
			}
		}
	case reflect.Struct:
		for i := range src.NumField() {
			cloneInto(dst.Field(i), src.Field(i))
		}
	default:
		dst.Set(src)
	}
}
