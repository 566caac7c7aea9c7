//go:build man

package main

import "github.com/caisson-run/caisson/cmd/internal/man"

// With the tag man, the program only writes its manual pages.
func init() { man.Write(rootCommand(&flags{}), "8") }
