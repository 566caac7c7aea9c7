package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// The fields of sandboxes, images and events that a bundle has. All others can hold a secret, or a
// name that tells of its owner: arguments, variables, labels, paths, hosts.
var (
	ofSandbox = strings.Fields("id state profile created_at exited_at pid execs network isolation owner_uid parent expires_at idle_timeout idle_since")
	ofImage   = strings.Fields("digest size_bytes created_at owner damaged")
	ofEvent   = strings.Fields("specversion id type time data")
	ofData    = strings.Fields("sandbox_id exec_id profile pooled isolation network memory_bytes milli_cpu pids stages exit_code signal reason " +
		"stdin_bytes stdout_bytes stderr_bytes lost_bytes cpu peak_memory_bytes duration limit kind verdict port skipped status call code version lost keys")
)

// maxEvents bounds the events of a bundle, and eventsSince is how far they go back.
const (
	maxEvents   = 5000
	eventsSince = "24h"
)

func bundleParts(a *cli.App) []part {
	ask := func(name string, read func(context.Context, *api.Client) (any, error)) part {
		return part{name, func(ctx context.Context) ([]byte, error) {
			client, err := a.RunningClient()
			if err != nil {
				return nil, err
			}
			defer client.Close()
			m, err := read(ctx, client)
			if err != nil {
				return nil, err
			}
			text, err := json.MarshalIndent(m, "", "  ")
			return append(text, '\n'), err
		}}
	}
	return []part{
		{"README", func(context.Context) ([]byte, error) { return []byte(bundleReadme), nil }},
		ask("version.json", func(ctx context.Context, c *api.Client) (any, error) {
			m, err := c.Version(ctx, &caissonv1.VersionRequest{})
			return a.Message(m), err
		}),
		ask("doctor.json", func(ctx context.Context, _ *api.Client) (any, error) {
			m, err := examine(a, ctx)
			return a.Message(m), err
		}),
		ask("capabilities.json", func(ctx context.Context, c *api.Client) (any, error) {
			m, err := c.Capabilities(ctx, &caissonv1.CapabilitiesRequest{})
			return a.Message(m), err
		}),
		ask("info.json", func(ctx context.Context, c *api.Client) (any, error) {
			m, err := c.Info(ctx)
			if err == nil {
				m.Networks = nil // names
			}
			return a.Message(m), err
		}),
		ask("sandboxes.json", func(ctx context.Context, c *api.Client) (any, error) {
			r, err := c.List(ctx, &caissonv1.ListRequest{})
			return reduced(a, r.GetSandboxes(), ofSandbox), err
		}),
		ask("images.json", func(ctx context.Context, c *api.Client) (any, error) {
			r, err := c.ListImages(ctx, &caissonv1.ListImagesRequest{})
			return reduced(a, r.GetImages(), ofImage), err
		}),
		ask("events.json", func(ctx context.Context, c *api.Client) (any, error) {
			list, err := recentEvents(ctx, c)
			return reduced(a, list, ofEvent), err
		}),
		{"host.txt", func(context.Context) ([]byte, error) { return hostText() }},
		{"daemon.log", daemonLog},
	}
}

const bundleReadme = `What caisson doctor --bundle wrote. Look at it before you send it.

Left out are the names, arguments, variables, labels and workspaces of sandboxes and commands, the
names of images, the hosts that were connected to, the configuration, secrets and output.
daemon.log is the log of the unit as it is, where the caller may read it.
`

// recentEvents are the newest ones, without names and values.
func recentEvents(ctx context.Context, c *api.Client) (list []*caissonv1.Event, err error) {
	err = c.Watch(ctx, &caissonv1.WatchRequest{Since: eventsSince}, func(e *caissonv1.Event) error {
		if e.Data != nil && !strings.HasSuffix(e.Type, ".ended") {
			e.Data.Reason = "" // of a refusal: a text, which may name a destination
		}
		keep(e.GetData(), ofData)
		if list = append(list, e); len(list) > maxEvents {
			list = list[1:]
		}
		return nil
	})
	return list, err
}

// reduced are messages that have the named fields alone.
func reduced[T proto.Message](a *cli.App, list []T, fields []string) []cli.Message {
	for _, m := range list {
		keep(m, fields)
	}
	return cli.Messages(a, list)
}

func keep(m proto.Message, fields []string) {
	r := m.ProtoReflect()
	if !r.IsValid() {
		return
	}
	r.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(fields, string(f.Name())) {
			r.Clear(f)
		}
		return true
	})
	r.SetUnknown(nil)
}

// hostFiles describe the kernel, the memory, the cgroups and the load of the host.
var hostFiles = strings.Fields("/etc/os-release /proc/version /proc/loadavg /proc/meminfo /proc/cgroups /proc/self/cgroup /proc/filesystems " +
	"/sys/fs/cgroup/cgroup.controllers /sys/kernel/security/lsm /proc/sys/user/max_user_namespaces /proc/sys/kernel/apparmor_restrict_unprivileged_userns " +
	"/proc/sys/kernel/pid_max /proc/sys/fs/file-nr /proc/pressure/cpu /proc/pressure/memory /proc/pressure/io")

func hostText() ([]byte, error) {
	var out bytes.Buffer
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "kernel %s, %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	for _, name := range hostFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte(err.Error() + "\n")
		}
		fmt.Fprintf(&out, "\n== %s\n%s", name, text)
	}
	return out.Bytes(), nil
}

// daemonLog asks the journal for the log of the unit.
func daemonLog(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, "journalctl", "--unit=caissond.service", "--lines=20000", "--output=short-iso", "--no-pager", "--quiet").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("the host has no journal")
	}
	if err == nil && len(text) == 0 {
		err = errors.New("the journal has nothing of caissond.service, or the caller may not read it")
	}
	return text, err
}
