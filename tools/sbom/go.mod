// Writes which modules programs are made of. It is a module of its own so that nothing of
// what it needs gets into ours.
module github.com/caisson-run/caisson/tools/sbom

go 1.26.6

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	golang.org/x/mod v0.43.0
)
