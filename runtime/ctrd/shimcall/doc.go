// Package shimcall answers those calls of containerd's shim program that need
// none of it.
//
// For each container containerd runs the program twice: with "start", to be told
// the socket of the shim that is to serve it, and with "delete", to have removed
// what a shim may have left (containerd, core/runtime/v2/README.md). The program
// takes ten times as long to start as there is to do when the shim of the group
// runs already, and when nothing is left; the second time it runs the OCI runtime
// as well. These two are answered here. Whatever is not exactly that is for the
// program itself.
package shimcall
