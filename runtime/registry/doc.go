// Package registry says what a pull may do: which registries are asked, to which servers and
// addresses it connects, with which credentials, what an image must have, and where its layers
// wait.
//
// Nothing here reads what a registry sends: caisson-images does (package rootfs/registry), over
// connections that this package makes. So each is judged here, by the configuration, and a process
// that is not what it was gets no other connection than a hostile registry leads to.
//
// Layers go to a spool that only root and the process of one pull can use. Package imagework passes
// them on to another process, which verifies digests and signatures.
package registry
