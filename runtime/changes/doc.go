// Package changes tells how an overlay differs from its lower layer, and how trees at rest differ.
//
// The upper layer was written by a sandbox, and may be written to meanwhile: no link is
// followed, no content is read, and all that is kept of it is bounded. What overlayfs itself
// notes there, in trusted attributes, cannot be forged in a user namespace (overlayfs.rst).
//
// Trees at rest, of snapshots, have files of their own each: their content is compared, and not
// looked into.
package changes
