// Package image turns archives of unknown origin into images that are safe to
// unpack, and makes images out of streams of files.
//
// containerd unpacks layers as root on the host, and its unpackers have had
// their share of escapes (CVE-2021-32760, CVE-2025-47290). So it never sees a
// foreign byte: [Import] spools the archive, finds out what it is, verifies
// every digest and size, and reads each layer with archive/tar through a
// [Filter], which writes a new, uncompressed layer that holds nothing but
// directories, regular files, symlinks, hard links to files of the same layer,
// and whiteouts. The image's configuration and manifest are written anew from
// the few fields that are kept; labels, annotations, volumes, exposed ports,
// history and everything else are dropped (CVE-2026-53488).
//
// [Build] is the same path for images that are made here: entries go through
// the same Filter into a single layer.
//
// Nothing here opens a network connection, starts a program or writes outside
// its spool file and its [Sink]. The spool file has no name, so a crash leaves
// nothing behind.
package image
