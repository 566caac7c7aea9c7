//go:build !failpoints

package failpoint

// Enabled reports whether the program has failpoints.
const Enabled = false

// At is where tests of a build with the tag failpoints let the daemon
// fail. Here it does nothing.
func At(string) error { return nil }
