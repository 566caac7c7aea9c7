package shimcall

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// GroupAnnotation makes a shim serve containers of the same value in one process.
const GroupAnnotation = "io.containerd.runc.v2.group"

// SocketName is how the socket of a shim is called, which serves the containers of
// a group, or the one container of that name, of the containerd at address
// (containerd, pkg/shim, CreateSocketAddress).
func SocketName(address, namespace, group string) string {
	sum := sha256.Sum256([]byte(filepath.Join(address, namespace, group)))
	return hex.EncodeToString(sum[:])
}

// start answers with the shim of the container's group, which it starts unless it
// runs. A container without a group has a shim of its own.
func (c Call) start(at Place) (answer []byte, ok bool) {
	group, err := groupOf(at.Bundle)
	if err != nil {
		return nil, false
	}
	socket := filepath.Join(at.Sockets, SocketName(c.Address, c.Namespace, cmp.Or(group, c.ID)))
	if !listens(socket) {
		Failpoint("start/alone")
		if err := c.serve(at, socket); err != nil {
			return nil, false // the program says why, if it cannot either
		}
	}
	return bootstrapResult(socket), true
}

// groupOf reads the group from the spec of the container.
func groupOf(bundle string) (string, error) {
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return "", err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	err = json.Unmarshal(data, &spec)
	return spec.Annotations[GroupAnnotation], err
}

// listens reports whether somebody accepts connections at socket, be it not at once
// (EAGAIN, connect(2)).
func listens(socket string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
	return err == nil || errors.Is(err, unix.EAGAIN)
}

// bootstrapResult encodes containerd.runtime.bootstrap.v1.BootstrapResult.
func bootstrapResult(socket string) (b []byte) {
	const version = 3 // of the task API that the shim serves
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, version)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendString(b, "unix://"+socket)
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	return protowire.AppendString(b, "ttrpc")
}
