// Package imageservice imports, pulls, builds, finds and removes images for callers. It knows
// the sandboxes that use images through its Fleet alone.
package imageservice
