// Package image stores images whose layers passed the filter (package filter), and says what
// they are: names, configurations, users, limits.
//
// The image's configuration and manifest are written anew from
// the few fields that are kept; labels, annotations, volumes, exposed ports,
// history and everything else are dropped (CVE-2026-53488). [Import] spools an archive
// and stores what another process finds in it; [Build] makes an image of a clean layer, and
// [Stage] adds layers to one that is stored.
//
// Nothing here opens a network connection, looks into a layer, or writes outside
// its spool file and its [Sink]. The spool file has no name, so a crash leaves
// nothing behind.
package image
