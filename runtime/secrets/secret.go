// Package secrets has what the daemon may tell of the secrets of routes. It holds no values.
package secrets

import "time"

// Secret is a secret without its value. A zero time is never since the daemon started.
type Secret struct {
	Name   string
	Source string // without the arguments of a command
	Read   time.Time
	Used   time.Time
	Err    error    // why its value cannot be read now
	Routes []string // that use it, as PROFILE/ROUTE
	Kept   bool     // it was set by a call, not by the configuration
	// Refresh is the time after which one that is kept is read again; 0 is that of the configuration.
	Refresh time.Duration
}
