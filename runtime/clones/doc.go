// Package clones makes the workspaces that are git clones of repositories of the host. The daemon
// reads nothing of a repository but whether its directories are there: git inside of the sandbox
// reads it, as the sandbox's user.
package clones
