// Package buildplan says how an image is built: what package dockerfile makes of a file, and the
// daemon does. It reads no file.
package buildplan

import (
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Platform is what images are built for, and on.
type Platform = ocispec.Platform

// Plan is how an image is built.
type Plan struct {
	Stages   []Stage // as far as the target needs them; the last one is the target
	Warnings []Warning
	Proxies  []string // variables of every RUN, which are no part of the image
}

// Warning tells of something that is taken and has no effect.
type Warning struct {
	Line int // 0: of no line
	Text string
}

// Config is what an image says of itself.
type Config struct {
	ocispec.ImageConfig
	Shell   []string // of SHELL; empty: /bin/sh -c
	OnBuild []string // instructions for builds that begin with the image
}

// Stage is what follows one FROM.
type Stage struct {
	Name   string // of AS; empty: none
	Image  string // name of the image that it begins with; empty: Base is a stage, or Scratch
	Base   int    // index of the stage that it begins with
	Empty  bool   // it begins with nothing: FROM scratch
	Line   int
	Text   string
	Steps  []Step
	Needed bool // the target needs it

	Config Config // of the image at the end
}

// Step changes files of the image. Exactly one of Run, Copy and Dir is set.
type Step struct {
	Line int
	Text string
	Run  *Run  `json:",omitempty"`
	Copy *Copy `json:",omitempty"`
	Dir  *Dir  `json:",omitempty"`
}

// Run is a command.
type Run struct {
	Args []string
	// Script is the content of an executable file that is the command. Args[0] is its name.
	Script string `json:",omitempty"`
	Env    []string
	Dir    string
	User   string  // empty: root
	Mounts []Mount `json:",omitempty"`
}

// Dir is a directory that is made if it is not there.
type Dir struct {
	Name string
	User string // to whom it belongs; empty: root
}

// Copy copies files.
type Copy struct {
	Stage   int    // index of the stage that they come from; below 0: the context or Image
	Image   string // name of the image that they come from
	Sources []string
	Texts   []Text // files that the Dockerfile holds
	// Downloads are files that are fetched. A step with some has no other sources.
	Downloads []Download    `json:",omitempty"`
	Checksum  digest.Digest `json:",omitempty"` // of the one download; empty: not said
	Dest      string        // absolute; with a slash at the end it is a directory
	Owner     string        // user or user:group; empty: as the files have it
	Mode      string        // octal, or as chmod(1) takes it; empty: as the files have it
	Unpack    bool          // archives are unpacked
}

// Text is a file of the Dockerfile.
type Text struct{ Name, Content string }

// Download is a file that is fetched by http or https.
type Download struct{ URL, Name string }

// Mount is something that a command has mounted. It is no part of the image.
type Mount struct {
	Type     string // "bind", "cache", "tmpfs" or "secret"
	Stage    int    // of a bind: index of the stage; below 0: the context or Image
	Image    string // of a bind: name of the image
	Source   string // of a bind: a file or directory there
	Target   string // absolute
	ReadOnly bool
	Size     int64  // of a tmpfs; 0: not said
	ID       string // of a cache or secret
	Mode     int64  // of a secret
	UID, GID int64  // of a secret
	Alone    bool   // of a cache: one command at a time may have it
}
