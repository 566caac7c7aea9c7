// Package layertar writes the layers of an image that is built, as tar streams for the filter
// of package image: changes that a build step made, and files that it copies. Copying follows
// BuildKit: what it merges is merged, and what it refuses is refused.
//
// All files are hostile: they come out of images, sandboxes and contexts. They are read
// through os.Root, which follows no link out of a tree. containerd's differ opens paths of
// the host instead, and asks for links there.
package layertar
