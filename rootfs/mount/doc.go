// Package mount makes and unmakes the mounts of a sandbox from outside it: the
// read-only root from image layers, and the workspace.
//
// Both use the mount API of open_tree(2), mount_setattr(2) and move_mount(2):
// a tree is cloned by descriptor, gets its flags and its id mapping while no
// path leads to it, and is attached last. So there is no moment at which the
// tree is visible without its restrictions, and no path that a sandbox
// controls is ever resolved.
//
// Every attach has its Detach, which is idempotent: an absent mount is
// success. Nothing here deletes the content of a directory.
package mount
