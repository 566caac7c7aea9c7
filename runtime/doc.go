// Package runtime is the life of a sandbox: it plans a request, makes the
// sandbox in stages, runs the command in it, and removes all of it again.
//
// It composes the leaves (oci, seccomp, netns, cgroups, rootfs, initproto) and
// speaks to containerd through an interface that runtime/ctrd implements.
package runtime
