// Package usage keeps what a sandbox used over time, in bounded memory: fine for the last
// minutes and coarser with age.
package usage
