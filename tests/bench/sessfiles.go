package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

const (
	smallTree, largeTree = 10, 100_000 // files of a workspace
	changedFiles         = 1000
	keptFiles            = 100 // of a directory of which a snapshot is made
	forks                = 10
	forkRounds           = 5
	filesSettings        = `ids: {blocks: 64}
profiles:
  cow: {disk: 1G, memory: 256M}
  image: {rootfs: rw, disk: 1G, memory: 256M}
  template: {rootfs: rw, disk: 1G, memory: 256M, setup: {run: [touch /etc/set-up]}}
pools: [{size: 12, profile: cow}]
`
)

// files measures copy-on-write workspaces, snapshots, forks and templates.
func (s *suite) files() {
	site := startSite(s.t, filesSettings)
	sec := Section{Name: "files"}
	small, large := s.tree(smallTree), s.tree(largeTree)
	attached := site.attachments(s.rounds, small, large)
	sec.Trace = append(sec.Trace, Stage{fmt.Sprintf("attach of a copy-on-write workspace of %d files", smallTree), attached[0]},
		Stage{fmt.Sprintf("attach of one of %d files", largeTree), attached[1]})
	s.r.target(atMost("attach of a copy-on-write workspace of 100,000 files, p50", attached[1].P50, 1, "ms"))

	diff, snapshot, rewind, fork := site.changes(s.rounds, large)
	sec.Trace = append(sec.Trace, Stage{fmt.Sprintf("diff of %d changes in it", changedFiles), *diff},
		Stage{"snapshot of a small change", *snapshot}, Stage{"rewind to it", *rewind}, Stage{fmt.Sprintf("fork -n %d, to the last first command", forks), *fork})
	s.r.target(atMost("diff of 1,000 changes in 100,000 files, p50", diff.P50, 50, "ms"))
	s.r.target(atMost("snapshot of a small change, p50", snapshot.P50, 30, "ms"))
	s.r.target(atMost("rewind to a small change, p50", rewind.P50, 50, "ms"))
	s.r.target(atMost("fork -n 10, ten first commands, p50", fork.P50, 150, "ms"))

	kept, mounted := site.directories(s.rounds)
	sec.Trace = append(sec.Trace, Stage{fmt.Sprintf("snapshot of a directory of %d files", keptFiles), *kept}, Stage{"attach of it", *mounted})

	if _, err := site.BuildTemplate(s.t.Context(), &caissonv1.BuildTemplateRequest{Profile: "template"}, func(*caissonv1.BuildProgress) {}); err != nil {
		s.t.Fatal(err)
	}
	made := site.creations(s.rounds, func() {}, &caissonv1.SandboxSpec{Profile: "image"}, &caissonv1.SandboxSpec{Profile: "template"})
	sec.Trace = append(sec.Trace, Stage{"create from an image, cold", made[0]}, Stage{"create from a template, cold", made[1]})
	s.r.target(atMost("create from a template, to create from an image, p50", round(made[1].P50/made[0].P50), 1.1, "x"))
	s.r.Sessions = append(s.r.Sessions, sec)
}

// tree is a directory of the host with files.
func (s *suite) tree(files int) string {
	dir := s.emptyDir()
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprint(i/100))
		if i%100 == 0 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), []byte("text\n"), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// attachments measures AttachWorkspace of each directory to a sandbox of the pool, in turns.
func (s *site) attachments(rounds int, dirs ...string) []Summary {
	took := make([]times, len(dirs))
	for range rounds {
		for i, dir := range dirs {
			s.awaitFull()
			box := s.createOf(&caissonv1.SandboxSpec{Profile: "cow"})
			begin := time.Now()
			s.attachCow(box.Id, dir)
			took[i] = append(took[i], time.Since(begin))
			s.mustRemove(box.Id)
		}
	}
	var all []Summary
	for _, t := range took {
		all = append(all, *t.summary())
	}
	return all
}

func (s *site) attachCow(id, dir string) {
	if _, err := s.AttachWorkspace(s.t.Context(), &caissonv1.AttachWorkspaceRequest{Ref: id, Workspace: &caissonv1.Workspace{Dir: dir, Mode: "cow"}}); err != nil {
		s.t.Fatal(err)
	}
}

// changes measures Diff of a sandbox that changed files of a workspace, and snapshots and forks of
// one that wrote a little, and its way back to them.
func (s *site) changes(rounds int, dir string) (diff, snapshot, rewind, fork *Summary) {
	s.awaitFull()
	box := s.createOf(&caissonv1.SandboxSpec{Profile: "cow"})
	s.attachCow(box.Id, dir)
	s.daemon.Run(s.t, "exec", box.Id, "--", "sh", "-c", fmt.Sprintf("cd /workspace && i=0; while [ $i -lt %d ]; do echo more >> $((i/100))/$i; i=$((i+1)); done", changedFiles))
	var took [4]times
	for range rounds {
		begin := time.Now()
		r, err := s.Diff(s.t.Context(), &caissonv1.DiffRequest{Ref: box.Id})
		if err != nil || len(r.Changes) != changedFiles {
			s.t.Fatalf("%d changes, %v", len(r.GetChanges()), err)
		}
		took[0] = append(took[0], time.Since(begin))
	}
	s.mustRemove(box.Id)
	box = s.createOf(&caissonv1.SandboxSpec{Profile: "cow"})
	s.daemon.Run(s.t, "exec", box.Id, "--", "sh", "-c", "echo some > /workspace/file")
	for i := range rounds {
		name := fmt.Sprint("s", i)
		begin := time.Now()
		if _, err := s.CreateSnapshot(s.t.Context(), &caissonv1.CreateSnapshotRequest{Ref: box.Id, Name: name}); err != nil {
			s.t.Fatal(err)
		}
		took[1] = append(took[1], time.Since(begin))
		begin = time.Now()
		if _, err := s.Rewind(s.t.Context(), &caissonv1.RewindRequest{Ref: box.Id, Snapshot: name}); err != nil {
			s.t.Fatal(err)
		}
		took[3] = append(took[3], time.Since(begin))
		s.daemon.Run(s.t, "snapshot", "rm", name)
	}
	for range forkRounds {
		s.awaitFull()
		took[2] = append(took[2], s.forks(box.Id))
	}
	s.mustRemove(box.Id)
	return took[0].summary(), took[1].summary(), took[3].summary(), took[2].summary()
}

// directories measures snapshots of a directory, and AttachSnapshot to a sandbox of the pool.
func (s *site) directories(rounds int) (kept, mounted *Summary) {
	s.awaitFull()
	box := s.createOf(&caissonv1.SandboxSpec{Profile: "cow"})
	s.daemon.Run(s.t, "exec", box.Id, "--", "sh", "-c", fmt.Sprintf("mkdir deps && for i in $(seq %d); do echo text > deps/$i; done", keptFiles))
	var took [2]times
	for range rounds {
		begin := time.Now()
		if _, err := s.CreateSnapshot(s.t.Context(), &caissonv1.CreateSnapshotRequest{Ref: box.Id, Name: "deps", Path: "/workspace/deps"}); err != nil {
			s.t.Fatal(err)
		}
		took[0] = append(took[0], time.Since(begin))
		s.awaitFull()
		other := s.createOf(&caissonv1.SandboxSpec{Profile: "cow"})
		s.daemon.Run(s.t, "exec", other.Id, "--", "mkdir", "deps")
		begin = time.Now()
		if _, err := s.AttachSnapshot(s.t.Context(), &caissonv1.AttachSnapshotRequest{Ref: other.Id, Snapshot: "deps"}); err != nil {
			s.t.Fatal(err)
		}
		took[1] = append(took[1], time.Since(begin))
		s.mustRemove(other.Id)
		s.daemon.Run(s.t, "snapshot", "rm", "deps")
	}
	s.mustRemove(box.Id)
	return took[0].summary(), took[1].summary()
}

// forks measures from the request to the end of the first command in each fork.
func (s *site) forks(id string) time.Duration {
	begin := time.Now()
	n := uint32(forks)
	r, err := s.Fork(s.t.Context(), &caissonv1.ForkRequest{Ref: id, Count: &n})
	if err != nil {
		s.t.Fatal(err)
	}
	var all sync.WaitGroup
	failed := make(chan error, forks)
	for _, f := range r.Forks {
		if f.Sandbox == nil {
			s.t.Fatalf("%v", f.Error)
		}
		all.Go(func() {
			_, err := s.execTrue(s.t.Context(), f.Sandbox.Id)
			failed <- err
		})
	}
	all.Wait()
	took := time.Since(begin)
	for _, f := range r.Forks {
		if err := <-failed; err != nil {
			s.t.Fatal(err)
		}
		s.mustRemove(f.Sandbox.Id)
	}
	return took
}
