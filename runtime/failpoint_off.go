//go:build !failpoints

package runtime

// failpoint is where tests of a build with the tag failpoints let the daemon
// fail. Here it does nothing.
func failpoint(string) error { return nil }
