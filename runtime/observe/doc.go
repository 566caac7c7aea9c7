// Package observe measures sandboxes over time. It says when one passes what its profile or its
// limits ask to be told of, and keeps what it used when it is gone. It reads no kernel itself.
package observe
