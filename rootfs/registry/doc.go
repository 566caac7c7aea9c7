// Package registry fetches an image from its registry. It runs in caisson-images, see package
// rootfs/imageproc, and never in the daemon, which gives it connections, credentials, and files
// for layers: see runtime/registry.
//
// containerd's resolver and fetcher speak the protocol. Around them this package
// decides which servers get credentials, what is tried again, and when to give up. A fetch that
// was cut off goes on there, also after the daemon was killed.
//
// A registry is not trusted. Sizes and digests are verified before the filter reads a layer,
// and a part of an earlier pull that does not fit is fetched anew.
package registry
