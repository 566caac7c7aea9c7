// Package unified writes unified patches as git does, so that git apply takes them. It runs in
// caisson-images, see package rootfs/imageproc, and never in the daemon: a sandbox wrote what it
// compares.
//
// How far two files are compared is bounded by the number of their differences (lcs.maxDiffs of
// go-udiff): from there on a part of them is replaced as a whole. So the time is linear in their
// size, and that is bounded.
package unified
