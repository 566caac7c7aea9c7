package seccomp

// Compiled is a filter as libseccomp makes it of a profile: what runc loads, but for
// the check of numbers above the highest named one that runc puts in front.
type Compiled struct {
	BPF      []byte   // struct sock_filter in the host's byte order
	PFC      string   // libseccomp's own text form, for people
	Skipped  []string // optional names that this libseccomp does not know
	Library  string   // version of libseccomp: "2.5.4"
	APILevel uint     // what library and kernel support together, see seccomp_api_get(3)
}
