// Package shimcall answers containerd's calls of the shim program as far as they
// need none of it.
//
// For each container containerd runs the program twice: with "start", to be told
// the socket of the shim that is to serve it, and with "delete", to have removed
// what a shim may have left (containerd, core/runtime/v2/README.md). To start, the
// program takes longer than there is to do when the shim of the group runs, or is
// only to be started, and when nothing is left; for the last it runs the OCI
// runtime as well. These are answered here. Whatever is not exactly that is for the
// program itself.
package shimcall
