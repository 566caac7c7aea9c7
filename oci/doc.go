// Package oci turns a Config into an OCI runtime specification, purely: the
// same Config gives the same bytes on every host.
//
// Build checks and assembles. Verify reads a finished specification and says
// whether it keeps every rule of the sandbox; it shares no code and no table
// with Build, so that a mistake in one is caught by the other.
package oci
