// Package filter turns archives of unknown origin into images that are safe to unpack. It runs in
// caisson-images, see package rootfs/imageproc, and never in the daemon.
//
// containerd unpacks layers as root on the host, and its unpackers have had
// their share of escapes (CVE-2021-32760, CVE-2025-47290). So it never sees a
// foreign byte: [Archive] finds out what an archive is, every digest and size is
// verified, and each layer is read with archive/tar through a
// [Filter], which writes a new, uncompressed layer that holds nothing but
// directories, regular files, symlinks, hard links to files of the same layer,
// and whiteouts.
package filter
