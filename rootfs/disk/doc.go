// Package disk gives each sandbox a file system of its own on the host's disk: an ext4 in a
// sparse file, attached by a loop device. Its size and its number of files are bounded by the
// kernel, and removing it takes no longer for a million files than for one.
//
// The file system has no journal and no write barriers: nothing on it outlives the boot. So
// a sandbox that calls fsync(2) in a loop makes the host's disk wait for nothing. Durable ones,
// which volumes have, have both.
package disk
