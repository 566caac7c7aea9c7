package sockmem

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"
)

// offsets are where the kernel keeps fields, which differs from kernel to kernel.
type offsets struct {
	receive, send, queued, forward, errors, protocol, socket, state int32 // of a socket
	buckets, bucketLog                                              int16 // of the map of tags
	bucketList, bucketSize                                          int32 // of a list of tags
	node, storage, tag                                              int32 // of a tag
	owner                                                           int32 // of the storage of a socket
}

// readOffsets finds the fields in the types of the kernel.
func readOffsets(kernel *btf.Spec) (o offsets, err error) {
	var errs []error
	field := func(size int, of string, path ...string) int32 {
		at, err := fieldOf(kernel, size, of, path)
		errs = append(errs, err)
		return at
	}
	o = offsets{
		receive:    field(4, "sock", "sk_backlog", "rmem_alloc"),
		send:       field(4, "sock", "sk_wmem_alloc"),
		queued:     field(4, "sock", "sk_wmem_queued"),
		forward:    field(4, "sock", "sk_forward_alloc"),
		errors:     field(4, "sock", "sk_error_queue", "qlen"),
		protocol:   field(2, "sock", "sk_protocol"),
		socket:     field(8, "sock", "sk_socket"),
		state:      field(1, "sock", "__sk_common", "skc_state"),
		buckets:    int16(field(8, "bpf_local_storage_map", "buckets")),
		bucketLog:  int16(field(4, "bpf_local_storage_map", "bucket_log")),
		bucketList: field(8, "bpf_local_storage_map_bucket", "list", "first"),
		node:       field(8, "bpf_local_storage_elem", "map_node", "next"),
		storage:    field(8, "bpf_local_storage_elem", "local_storage"),
		tag:        field(0, "bpf_local_storage_elem", "sdata", "data"),
		owner:      field(8, "bpf_local_storage", "owner"),
	}
	var bucket *btf.Struct
	if err := kernel.TypeByName("bpf_local_storage_map_bucket", &bucket); err == nil { // else it is told above
		o.bucketSize = int32(bucket.Size)
	}
	return o, errors.Join(errs...)
}

// fieldOf returns where a field of a struct is that has that many bytes.
func fieldOf(kernel *btf.Spec, size int, of string, path []string) (int32, error) {
	var s *btf.Struct
	if err := kernel.TypeByName(of, &s); err != nil {
		return 0, fmt.Errorf("find struct %s: %w", of, err)
	}
	at, got, err := find(s.Members, path)
	if err == nil && got != size {
		err = fmt.Errorf("it has %d bytes, not %d", got, size)
	}
	if err != nil {
		return 0, fmt.Errorf("find field %v of struct %s: %w", path, of, err)
	}
	return int32(at), nil
}

// find returns where the field at path is, and its size.
func find(members []btf.Member, path []string) (at uint32, size int, err error) {
	m, base, ok := member(members, path[0])
	if !ok {
		return 0, 0, fmt.Errorf("there is no %q", path[0])
	}
	if len(path) == 1 {
		size, err = btf.Sizeof(m.Type)
		return base, size, err
	}
	s, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
	if !ok {
		return 0, 0, fmt.Errorf("%q is no struct", path[0])
	}
	at, size, err = find(s.Members, path[1:])
	return base + at, size, err
}

// member looks into structs and unions without a name as well.
func member(members []btf.Member, name string) (found btf.Member, at uint32, ok bool) {
	if i := slices.IndexFunc(members, func(m btf.Member) bool { return m.Name == name }); i >= 0 {
		return members[i], members[i].Offset.Bytes(), members[i].BitfieldSize == 0
	}
	for _, m := range members {
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if m.Name != "" {
			continue
		}
		if found, at, ok = member(inner, name); ok {
			return found, m.Offset.Bytes() + at, true
		}
	}
	return found, 0, false
}
