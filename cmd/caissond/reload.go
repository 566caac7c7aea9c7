package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/registry"
	"github.com/caisson-run/caisson/runtime/snapshots"
	changesets "github.com/caisson-run/caisson/runtime/workspaces"
)

// settingsOf makes of c what a running daemon can change.
func settingsOf(c config.Config) (runtime.Settings, error) {
	profiles, err := profiles(c)
	if err != nil {
		return runtime.Settings{}, err
	}
	policy, err := peers(c, profiles)
	if err := errors.Join(err, checkSocket(c, profiles, policy)); err != nil {
		return runtime.Settings{}, err
	}
	limits := image.DefaultLimits()
	limits.Bytes, limits.Entries, limits.Ratio = c.Images.MaxBytes, c.Images.MaxEntries, c.Images.MaxRatio
	var rules []registry.Rule
	for _, v := range c.Registries.Verify {
		rules = append(rules, registry.Rule{Repository: v.Repository, Require: v.Require, Digests: v.Digests, Key: v.KeyFile()})
	}
	registries, err := registry.New(registry.Config{
		Verify:  rules,
		Allowed: c.Registries.Allowed, Realms: c.Registries.Realms, HostsDir: c.Registries.HostsDir,
		Credentials: c.Registries.CredentialsFile(), Timeout: time.Duration(c.Registries.Timeout), SpoolDir: filepath.Join(c.Root, "spool"),
	})
	return runtime.Settings{
		Profiles: profiles, Peers: policy, Workspaces: workspaces(c), Control: c.Workspaces.ControlFiles, Changesets: retention(c.Workspaces), Snapshots: snapshotRetention(c.Snapshots), Languages: c.Images.Languages,
		Images: imageservice.Settings{Limits: limits, Prune: prunePolicy(c.Images.Prune), Registry: registries},
	}, err
}

func retention(w config.Workspaces) changesets.Retention {
	return changesets.Retention{Most: int(w.Kept), Bytes: int64(w.KeptBytes), For: time.Duration(w.KeptFor)}
}

func snapshotRetention(s config.Snapshots) snapshots.Retention {
	return snapshots.Retention{Most: int(s.Kept), Bytes: int64(s.KeptBytes), For: time.Duration(s.KeptFor)}
}

// prunePolicy is p, which Validate has checked.
func prunePolicy(p config.Prune) imageservice.PrunePolicy {
	return imageservice.PrunePolicy{UnusedFor: time.Duration(p.UnusedFor), MinFree: func(size int64) int64 {
		free, _ := p.Free(size)
		return free
	}}
}

// reload reads the configuration again and puts in force all of it that needs no
// restart. An error changes nothing.
func (d *daemon) reload(ctx context.Context) (runtime.Reloaded, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	next, err := d.load()
	if err != nil {
		return runtime.Reloaded{}, err
	}
	running := *d.config.Load()
	change := running.Reload(next)
	change.Config.KnowSecrets(maps.Keys(*d.kept.Load()))
	s, err := checkChange(change)
	if err != nil {
		return runtime.Reloaded{}, err
	}
	useRemote, err := d.reloadRemote(change.Config)
	if err != nil {
		return runtime.Reloaded{}, err
	}
	if err := d.gateway.SetSecrets(ctx, sourcesOf(change.Config), d.keptSources(change.Config)); err != nil { // also where no key changed: a file may hold another value
		return runtime.Reloaded{}, err
	}
	before, after := digestOf(running), digestOf(change.Config)
	if err := d.open(change.Config); err != nil { // last: it is the one step that acts and may fail
		return runtime.Reloaded{}, err
	}
	useRemote()
	d.policy.Store(&s.Peers)
	d.manager.Load().Apply(s)
	d.config.Store(&change.Config)
	d.takeKept(ctx, change.Config, always)
	d.log.Info("configuration reloaded", "file", d.file, "changed", change.Changed, "digest", after)
	d.warnUnisolated(s.Profiles)
	if len(change.NeedsRestart) > 0 {
		d.log.Warn("new values need a restart of the daemon", "keys", change.NeedsRestart)
	}
	if before != after {
		d.tell(ctx, events.ConfigChanged, events.Data{ConfigDigest: after, ConfigDigestBefore: before, Keys: change.Changed})
	}
	return runtime.Reloaded{Changed: change.Changed, NeedsRestart: change.NeedsRestart, Digest: after}, nil
}

// checkChange checks the values that are to be in force, among which are old ones
// that the new file no longer has.
func checkChange(change config.Change) (runtime.Settings, error) {
	c := change.Config
	err := errors.Join(c.Validate(), checkNames(c))
	if err == nil {
		var s runtime.Settings
		if s, err = settingsOf(c); err == nil {
			return s, nil
		}
	}
	if len(change.NeedsRestart) > 0 {
		err = sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.reload",
			fmt.Errorf("beside the running values of %q: %w", change.NeedsRestart, err), "restart the daemon: these keys need one")
	}
	return runtime.Settings{}, err
}

// open gives the API's socket the mode and group that the peers of c need.
func (d *daemon) open(c config.Config) error {
	open, err := doorOf(c)
	if err != nil {
		return err
	}
	return sbxerr.Wrap(sbxerr.StateDir, "caissond.reload", open.of(c.Socket))
}

// reloadOn reloads for each signal until ctx ends. A failure is logged.
func (d *daemon) reloadOn(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			if _, err := d.reload(peer.NewContext(ctx, peer.System)); err != nil {
				d.log.Error("configuration not reloaded, nothing changed", "code", sbxerr.Of(err), "err", api.Explain(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

// digestOf returns the SHA-256 of c as JSON.
func digestOf(c config.Config) string {
	text, _ := json.Marshal(c) // plain values
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
