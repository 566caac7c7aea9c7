package main

import (
	"archive/tar"
	"fmt"

	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/tests/harness"
)

const (
	home         = "/home/caisson" // of the writable root
	diskPool     = 8
	tarRounds    = 5
	tarFiles     = 10_000
	tarFile      = 4_000 // bytes of a file
	removeRounds = 3
	removedFiles = 100_000
	cachedFiles  = 1000
	diskSettings = "ids: {blocks: 64}\nprofiles: {rw: {rootfs: rw, disk: 1G, disk_inodes: 200000, memory: 1G, cpus: 2}}\n"
)

// disk measures writable roots: their creation, writing to them beside an overlay of the host,
// and the removal of what was written.
func (s *suite) disk() {
	sec := Section{Name: "disk"}
	sites := [2]*site{
		startSite(s.t, fmt.Sprintf("ids: {blocks: 64}\npools: [{size: %d}]\n", diskPool)),
		startSite(s.t, fmt.Sprintf("%spools: [{size: %d, profile: rw}]\n", diskSettings, diskPool)),
	}
	specs := [2]*caissonv1.SandboxSpec{{}, {Profile: "rw"}}
	var made [2]times
	for range s.rounds {
		for i, site := range sites {
			site.awaitFull()
			begin := time.Now()
			box := site.createOf(specs[i])
			made[i] = append(made[i], time.Since(begin))
			site.mustRemove(box.Id)
		}
	}
	readOnly, writable := made[0].summary(), made[1].summary()
	if p := sites[1].pool(); p.Hits < int64(s.rounds) {
		s.t.Fatalf("%d of %d writable roots came from the pool", p.Hits, s.rounds)
	}
	sec.Trace = append(sec.Trace, Stage{"create, from the pool", *readOnly}, Stage{"create with a writable root, from the pool", *writable})
	s.r.target(atMost("a writable root adds, from the pool, p50", round(writable.P50-readOnly.P50), 2.5, "ms"))

	site := startSite(s.t, diskSettings)
	box := site.createOf(specs[1])
	size := site.takes(box.Id)
	sec.Figures = append(sec.Figures, Figure{"an unused disk of 1 GiB takes on the host", size, "MB"})
	s.r.target(atMost("an unused disk takes on the host", size, 1, "MB"))
	sec.Runs = s.untar(site, box.Id)
	site.mustRemove(box.Id)
	s.r.targetRatio("tar x of 10,000 files, to an overlay of the host", sec.Runs, "overlay", 1.1)

	empty, removed := s.removals(site, specs[1])
	sec.Trace = append(sec.Trace, Stage{"rm of a sandbox that wrote nothing", *empty}, Stage{fmt.Sprintf("rm of a sandbox that wrote %d files", removedFiles), *removed})
	s.r.target(atMost("rm of a sandbox that wrote 100,000 files, p50", removed.P50, 20, "ms"))
	sec.Runs = append(sec.Runs, s.cached()...)
	s.r.Sessions = append(s.r.Sessions, sec)
}

// cached measures run with the cache of npm, in which files are, beside run with the same disk and
// without one, and beside run with a volume of a size in place of the cache, in turns.
func (s *suite) cached() []Run {
	site := startSite(s.t, "profiles: {plain: {disk: 1G}, cached: {disk: 1G, caches: [npm]}, fills: {disk: 1G, caches: [npm], merge_caches: true}}\n")
	site.daemon.Run(s.t, "run", "--profile", "fills", "--", "sh", "-c", fmt.Sprintf("cd $npm_config_cache && i=0; while [ $i -lt %d ]; do echo $i > $i; i=$((i+1)); done", cachedFiles))
	site.daemon.Run(s.t, "volume", "create", "--size", "1G", "sized")
	var took [3]times
	for range s.rounds {
		for i, flags := range [][]string{{"--profile", "plain"}, {"--profile", "cached"}, {"--profile", "plain", "--mount", "type=volume,src=sized,dst=/v"}} {
			begin := time.Now()
			site.daemon.Run(s.t, append(append([]string{"run"}, flags...), "--", "true")...)
			took[i] = append(took[i], time.Since(begin))
		}
	}
	return []Run{
		{Name: "no cache", What: "run with a disk", Took: took[0].summary()},
		{Name: "cache", What: fmt.Sprintf("run with a warm cache of %d files", cachedFiles), Took: took[1].summary(), Ratio: ratioOfPairs(took[1], took[0])},
		{Name: "volume", What: "run with a volume that has a size", Took: took[2].summary(), Ratio: ratioOfPairs(took[2], took[0])},
	}
}

func (s *site) createOf(spec *caissonv1.SandboxSpec) *caissonv1.Sandbox {
	box, err := s.Create(s.t.Context(), &caissonv1.CreateRequest{Spec: spec})
	if err != nil {
		s.t.Fatal(err)
	}
	return box
}

// takes is what the disk of a sandbox takes on the host, in MB.
func (s *site) takes(id string) float64 {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(s.daemon.Root, "disks", id, "image"), &st); err != nil {
		s.t.Fatal(err)
	}
	return round(float64(st.Blocks*512) / 1e6)
}

// archive writes an archive of files.
func (s *suite) archive(dir string, files, size int) (path string) {
	path = filepath.Join(dir, fmt.Sprintf("%d.tar", files))
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	data := make([]byte, size)
	for i := range files {
		if i%100 == 0 {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%d/", i/100), Mode: 0o755})
		}
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%d/f%d", i/100, i), Mode: 0o644, Size: int64(size)})
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// untar unpacks an archive in the root of a sandbox and in an overlay of the host, in turns. It
// is written back in neither.
func (s *suite) untar(site *site, id string) []Run {
	dir := s.emptyDir()
	archive := s.archive(dir, tarFiles, tarFile)
	merged := s.overlay(dir)
	var took [2]times
	for i := range tarRounds {
		inside := site.unpack(id, archive, fmt.Sprintf(home+"/unpacked%d", i))
		at := filepath.Join(merged, fmt.Sprint(i))
		if err := os.Mkdir(at, 0o755); err != nil {
			s.t.Fatal(err)
		}
		took[0] = append(took[0], inside)
		outside, err := timed(exec.CommandContext(s.t.Context(), "busybox", "tar", "-xf", archive, "-C", at))
		if err != nil {
			s.t.Fatal(err)
		}
		took[1] = append(took[1], outside)
	}
	return []Run{
		{Name: "caisson", What: fmt.Sprintf("tar x of %d files in a writable root", tarFiles), Took: took[0].summary()},
		{Name: "overlay", What: "the same in an overlay of the host", Took: took[1].summary(), Ratio: ratioOfPairs(took[0], took[1])},
	}
}

// overlay mounts one on the host's disk.
func (s *suite) overlay(dir string) (merged string) {
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	merged = filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := unix.Unmount(merged, 0); err != nil {
			s.t.Error(err)
		}
	})
	return merged
}

// unpack gives an archive to tar inside, and tells how long that took.
func (s *site) unpack(id, archive, dir string) time.Duration {
	s.daemon.Run(s.t, "cp", archive, id+":"+home+"/archive.tar")
	var result struct {
		Duration harness.Duration
		ExitCode int    `json:"exit_code"`
		Stderr   string `json:"stderr_text"`
	}
	s.daemon.Run(s.t, "exec", id, "--", "mkdir", dir)
	s.daemon.Run(s.t, "exec", "--json", id, "--", "tar", "-xf", home+"/archive.tar", "-C", dir).JSONIn(s.t, "result", &result)
	if result.ExitCode != 0 {
		s.t.Fatalf("tar ended with %d: %s", result.ExitCode, result.Stderr)
	}
	return result.Duration.Duration
}

// removals measures Remove of sandboxes that wrote nothing, and many files, in turns.
func (s *suite) removals(site *site, spec *caissonv1.SandboxSpec) (empty, full *Summary) {
	archive := s.archive(s.emptyDir(), removedFiles, 1)
	var took [2]times
	for range removeRounds {
		for i := range took {
			box := site.createOf(spec)
			if i == 1 {
				site.unpack(box.Id, archive, home+"/unpacked")
			}
			begin := time.Now()
			site.mustRemove(box.Id)
			took[i] = append(took[i], time.Since(begin))
		}
	}
	return took[0].summary(), took[1].summary()
}
