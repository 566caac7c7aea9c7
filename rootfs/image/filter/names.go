package filter

import "github.com/caisson-run/caisson/rootfs/image"

// What this package shares with package image.
type (
	Limits = image.Limits
	Report = image.Report
	Config = image.Config
	Head   = image.Head
)

const (
	maxPath = image.MaxPath
	maxID   = image.MaxID
)
