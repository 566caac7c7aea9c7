// Package traffic keeps what sandboxes tried to reach, and who came in to them, and
// what became of it.
//
// Each sandbox has two rings of lines (JSON) in the directory of its output: one of the
// connections that were carried, one of all that costs a sandbox nothing, lookups and
// refusals, so that a flood of these drops none of the first. A ring has two files of
// maxFile: past that the older one goes, but for what its entries come to, which is
// the first line of the next one; who reads is told that some are gone. They last as
// long as the sandbox's output does. A third file, on tmpfs, holds the addresses that
// names got: an address keeps its meaning across a restart of the daemon, for whoever
// in the sandbox remembers it.
//
// A Log is the gateway's Observer. What it is told comes from a process that
// handles hostile bytes: it is text to keep and to show, and nothing is decided
// by it.
package traffic
