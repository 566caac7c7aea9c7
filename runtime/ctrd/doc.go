// Package ctrd speaks to containerd, and keeps the daemon's own one running.
//
// It is the only importer of containerd's client. A Supervisor starts a private
// containerd with its own root, state, socket and a generated configuration, and
// restarts it when it dies; sandboxes survive that, because their shims do. An
// Engine is a client of that containerd, or of the host's (1.7 or newer), in one
// containerd namespace. It makes and removes tasks, and stores images.
//
// Of an image only the layers and the bytes of its configuration are ever handed
// out. Labels of an image never become labels of a container, because containerd
// and its plugins act on some of them (CVE-2026-53488: restart.loguri runs a
// binary of the host as root).
package ctrd
