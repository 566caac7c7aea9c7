// Package dockerfile plans how an image is built, from a Dockerfile. It is pure: nothing is
// read, run or asked for. BuildKit's packages read the file, and its documents say what an
// instruction means. Whatever cannot be carried out is refused by its line.
package dockerfile
