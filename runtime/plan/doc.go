// Package plan turns requests into plans: a [Sandbox] and the [Command]s in it, with
// every question answered. Every refusal that needs no action happens here, before
// anything is made. The package takes no lock and does no I/O of its own: a [Planner]
// brings functions that look up images and users. caisson spec prints a plan.
package plan
