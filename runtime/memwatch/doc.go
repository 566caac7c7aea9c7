// Package memwatch ends sandboxes that take memory of the kernel's that no cgroup counts: by
// locks of files, and by what their sockets hold.
package memwatch
