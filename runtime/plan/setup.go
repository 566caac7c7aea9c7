package plan

// Setup is what is done once for all sandboxes of a profile. Its result, a template, is their
// image.
type Setup struct {
	Profile string      `json:",omitempty"` // of the sandboxes in which Run happens; empty is that of builds
	Copy    []SetupCopy `json:",omitempty"`
	Run     []string    `json:",omitempty"` // for a shell inside, as root, after Copy
	Network string      `json:",omitempty"` // mode, while Run happens
	Allow   []string    `json:",omitempty"`
	Deny    []string    `json:",omitempty"`
}

// SetupCopy is a file or directory of the host that root copies in.
type SetupCopy struct{ From, To string }
