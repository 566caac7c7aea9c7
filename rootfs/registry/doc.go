// Package registry fetches content of a registry. It runs in caisson-images, see package
// rootfs/imageproc, and never in the daemon, which gives it connections, credentials, and files
// to write to: see runtime/registry. Another process reads what is in them.
//
// containerd's resolver and fetcher speak the protocol. Around them this package
// decides which servers get credentials, what is tried again, and when to give up. A fetch that
// was cut off goes on there, also after the daemon was killed.
//
// A registry is not trusted. Sizes and digests of layers are verified here, so that a part of an
// earlier pull that does not fit is fetched anew, and once more by who reads them.
package registry
