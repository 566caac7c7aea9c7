// Package fromhost collects software that is installed on the host, with what
// it needs, for an image: packages with their dependencies, and paths with the
// shared libraries and interpreters of the programs found there.
//
// The collector is a process of caisson-images, see [Serve]. It runs as a user that
// owns nothing, without capabilities and in no group, so the kernel decides that
// an image gets only files that everybody may read. A path that is replaced
// under the copy leads to no other file (the symlink races of CVE-2018-15664
// and CVE-2019-14271 in tools that copy as root). Its only output is a layer, which
// passed the filter.
//
// The state of the host stays behind, see refused in policy.go. Accounts and
// name service are not the host's files but new ones. Of certificates, those of
// the authorities that the host trusts are copied.
//
// Not known are libraries that a program opens by itself (dlopen(3)); packages
// bring theirs.
package fromhost
