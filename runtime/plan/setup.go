package plan

import "github.com/caisson-run/caisson/runtime/images"

// StepProfile is the profile of build steps: package managers give files modes that strict
// refuses.
const StepProfile = "compat"

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

// template finds the template of a profile. A sandbox that begins with a snapshot of one has
// the template that it was written on.
func (pl Planner) template(profile string) (images.Stored, error) {
	if pl.From != nil {
		if of, ok := images.TemplateOf(pl.From.Image); ok && of == profile {
			return pl.RootImage(pl.From.Image)
		}
	}
	return pl.Template(profile)
}
