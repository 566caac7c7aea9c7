//go:build !failpoints

package shimcall

// Failpoint is where tests of a build with the tag failpoints have the program end
// or wait. Here it does nothing.
func Failpoint(string) {}
