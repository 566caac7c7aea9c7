// Package dockerfile plans how an image is built, from a Dockerfile. It is pure: nothing
// is read, run or asked for. buildkit's parser reads the syntax. Which instructions and
// flags there are is decided here, by a list of those that caisson carries out. Everything
// else is refused by its line.
package dockerfile
