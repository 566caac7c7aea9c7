package seccomp

// Compiled is the filter that libseccomp makes of a profile. runc loads the same one, with
// a check in front for numbers above the highest named call.
type Compiled struct {
	Numbers  map[string]uint32 // of the named calls that the architecture has
	BPF      []byte            // struct sock_filter in the host's byte order
	PFC      string            // libseccomp's own text form, for people
	Skipped  []string          // optional names that this libseccomp does not know
	Library  string            // version of libseccomp: "2.5.4"
	APILevel uint              // what library and kernel support together, see seccomp_api_get(3)
}
