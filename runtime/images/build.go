package images

import "strings"

// The names of images that only builds use. ListImages leaves them out.
const (
	ContextPrefix = "build-context/" // the files that a client sent for one build
	CachePrefix   = "build-cache/"   // the state after a step
)

// templatePrefix begins the names of templates: the images that set-ups of profiles make.
const templatePrefix = "template/"

// TemplateName is the name of the template of a profile by all that goes into it.
func TemplateName(profile, key string) string { return templatePrefix + profile + ":" + key }

// TemplateOf is the profile whose template an image of root's of this name is.
func TemplateOf(name string) (profile string, ok bool) {
	rest, ok := strings.CutPrefix(name, templatePrefix)
	profile, _, tagged := strings.Cut(rest, ":")
	return profile, ok && tagged
}

// OfBuild reports whether only builds use an image of this name.
func OfBuild(name string) bool {
	return strings.HasPrefix(name, ContextPrefix) || strings.HasPrefix(name, CachePrefix)
}

// BuildNeeds is what a build reads.
type BuildNeeds struct {
	Images  []string // that it begins with or copies from, sorted
	Context bool     // it reads files of the context
}

// BuildEvent is progress of a build.
type BuildEvent struct {
	Step, Steps int    // from 1
	Line        int    // of the Dockerfile
	Text        string // of the instruction; with Output empty
	Cached      bool   // the step was done by an earlier build
	Output      []byte // of the step's command, which is under way
	Stderr      bool   // Output is of its standard error
}
