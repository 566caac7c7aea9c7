// Package patches makes a patch of the changes of a copy-on-write workspace.
//
// The daemon finds out which files there are on both sides, opens them one at a time, and reads
// none: caisson-images reads and compares them, without rights, see package rootfs/patch.
// Files and directories of the host are opened with a user's rights over files and no other. No
// link and no mount is followed, and only regular files are opened.
package patches
