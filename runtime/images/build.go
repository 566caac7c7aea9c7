package images

import "strings"

// The names of images that only builds use. ListImages leaves them out.
const (
	ContextPrefix = "build-context/" // the files that a client sent for one build
	CachePrefix   = "build-cache/"   // the state after a step
)

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
