// Package imagework is what the daemon has done by caisson-images: it finds the image in an
// archive or a registry, and passes layers through the filter. The daemon gets layers that the
// filter wrote, and the few fields of a configuration that are kept.
//
// What comes back is not trusted: how long it is and what it names is checked here and in package
// image, which writes the documents of an image anew and takes digests from what was stored.
// Nothing here looks into a layer.
package imagework

import (
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/rootfs/image"
)

// The kinds of work.
const (
	KindArchive = "archive" // files: the archive, and an empty one to unpack it to
	KindRemote  = "remote"  // an image of a registry, whose content the daemon passes on
	KindFetch   = "fetch"   // that content, over connections that the daemon makes
	KindFilter  = "filter"  // layers of a build
	KindHost    = "from-host"
)

// The messages. A stream follows those that say so.
const (
	MessageHead       = "head"       // image.Head, of an archive
	MessageDocument   = "document"   // ocispec.Descriptor; the answer has no body, and its content follows
	MessageSignatures = "signatures" // []digest.Digest; the answer has no body, and a Signature for each follows
	MessageFound      = "found"      // Found, of a registry
	MessageGo         = "go"         // Go, to fetch its layers; of an archive without a body
	MessageLayer      = "layer"      // of the next layer, which follows; of a registry the daemon sends it first
	MessageSee        = "see"        // a layer below follows
	MessageSeen       = "seen"
	MessageAdd        = "add" // the next layer follows, and is sent back
	MessageBegun      = "begun"
	MessageReport     = "report"  // Report: the end
	MessageTarget     = "target"  // ocispec.Descriptor: what a name leads to
	MessageFetch      = "fetch"   // Fetch
	MessageFetched    = "fetched" // Fetched
)

// Bounds of messages, in bytes.
const (
	maxHead   = 16 << 20 // a configuration, as JSON escapes it
	maxFound  = 17 << 20
	maxReport = 1 << 20
)

// Request is what work on layers begins with.
type Request struct {
	Limits image.Limits       `json:"limits"`
	Target ocispec.Descriptor `json:"target,omitzero"` // that the name leads to in its registry
	Signed *Signed            `json:"signed,omitempty"`
	Over   bool               `json:"over,omitempty"` // an archive's layers lie over others, which the daemon shows before it lets them come
}

// Signed demands a signature of an image of a registry.
type Signed struct {
	Key  []byte `json:"key"`  // PEM: by whom
	Name string `json:"name"` // of the image, for messages
	Rule string `json:"rule"` // that demands it
}

// Signature is what a registry has for an image.
type Signature struct {
	Of       digest.Digest `json:"of,omitempty"`
	Envelope []byte        `json:"envelope,omitempty"` // DSSE; else
	Payload  []byte        `json:"payload,omitempty"`  // what was signed
	Value    []byte        `json:"value,omitempty"`    // its signature
	More     bool          `json:"more,omitempty"`     // instead: there are more than are read
}

// Found is an image of a registry.
type Found struct {
	Head   image.Head   `json:"head"`
	Remote image.Remote `json:"remote"`
}

// Go begins to fetch. The lowest layers are stored already, under these digests.
type Go struct {
	Stored []digest.Digest `json:"stored,omitempty"`
}

// Begun is software of the host that was found.
type Begun struct {
	Summary string   `json:"summary"` // one line on its size
	Env     []string `json:"env"`     // PATH and LANG that suit the content, K=V
}

// Report is what the filter did, and what the caller should know, a line each.
type Report struct {
	Report   image.Report `json:"report"`
	Warnings []string     `json:"warnings,omitempty"`
}
