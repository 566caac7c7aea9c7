// Package registry fetches images from registries: documents and layers, as
// rootfs/image needs them to filter an image before it is stored.
//
// containerd's resolver and fetcher speak the protocol. Around them this package
// decides which hosts are asked, which of them get credentials, what is tried again,
// and when to give up. Layers go to a spool that only root reads. A fetch that was
// cut off goes on there, also after the daemon was killed.
//
// A registry is not trusted. Sizes and digests are verified before anything is used,
// and a part of the spool that does not fit is deleted.
package registry
