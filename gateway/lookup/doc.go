// Package lookup is what the gateway tells of questions for names, and the addresses that names
// have in a sandbox.
package lookup
