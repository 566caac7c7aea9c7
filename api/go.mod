module github.com/caisson-run/caisson/api

go 1.26.6

require (
	connectrpc.com/connect v1.21.1
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
)
