// Package runtime is the life of a sandbox: it plans a request, makes the
// sandbox in stages or takes a ready one from a pool, runs commands in it, goes on
// with it after a restart of the daemon, and removes all of it again.
//
// It composes the leaves (oci, seccomp, netns, cgroups, rootfs, gateway, initproto) and
// speaks to containerd through an interface that runtime/ctrd implements.
package runtime
