// Package traffic keeps what sandboxes tried to reach, and who came in to them, and
// what became of it.
//
// Each sandbox has a file of lines (JSON) in the directory of its output, the
// oldest first, bounded to twice maxFile: past that the older half goes, but for what
// its entries come to, which is the first line of the next file. It lasts as long as
// the sandbox's output does. A second file, on tmpfs, holds the
// addresses that names got: an address keeps its meaning across a restart of the
// daemon, for whoever in the sandbox remembers it.
//
// A Log is the gateway's Observer. What it is told comes from a process that
// handles hostile bytes: it is text to keep and to show, and nothing is decided
// by it.
package traffic
