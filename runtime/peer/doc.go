// Package peer decides who may call the daemon, and for what.
//
// A Caller is what the kernel says of the other end of a unix socket: user,
// groups and process at the time of its connect(2). A Policy turns it into a
// Grant, or refuses. The Grant answers every later question: which profiles,
// limits, directories and sandboxes. All but the one about directories are
// answered by looking; that one asks the kernel, as that very user.
//
// Everything fails closed: a context without a Caller, a Caller that no
// constructor made, a zero Policy and a zero Grant permit nothing, but that a
// zero Policy lets root be root.
package peer
