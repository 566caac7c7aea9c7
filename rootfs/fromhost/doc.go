// Package fromhost collects software that is installed on the host, with what
// it needs, for an image: packages with their dependencies, and paths with the
// shared libraries and interpreters of the programs found there.
//
// [Collect] reads the host and makes a [Plan], which can be printed; [Write]
// copies what the plan names into a [Sink], such as the Writer of package
// image. Nothing is ever bind-mounted, and nothing of the host is changed.
//
// The caller of the daemon is not root, the daemon is. So nothing is copied
// that any user of the host could not read: each directory on the way to a
// file must be searchable by everybody, and the file readable by everybody.
// Both are checked on open descriptors, component by component and without
// following a symbolic link, so a path that changes under the copy is an error
// and never another file (the symlink races of CVE-2018-15664 and
// CVE-2019-14271 in other tools that copy as root).
//
// Only permission bits are looked at: an access control list that keeps a file
// from single users (acl(5)) does not keep it from an image. Libraries that a
// program opens by itself (dlopen(3)) are not known; packages bring theirs.
//
// The state of the host stays behind: see [Refused] for the places. Accounts,
// name service and certificates are not the host's files but new ones, except
// for the certificates of authorities that the host trusts.
package fromhost
