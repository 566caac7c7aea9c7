package clones

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/runtime/pipes"
)

//go:embed clone.sh
var script string

// The exit codes of the script that have a meaning.
const (
	exitNoGit   = 90
	exitPartial = 91
)

// atMost bounds the making of one clone, and lastWords what is waited for its messages.
const (
	atMost    = 10 * time.Minute
	lastWords = time.Second
)

// Command is the command line that makes a clone of the repository source in the empty directory
// to, by reference to the directory objects.
func Command(source, objects, to string) []string {
	return []string{"/bin/sh", "-c", script, "clone", source, objects, to}
}

// Make has PID 1 run cmd, with pipes of owner, and says why there is no clone of dir.
func Make(ctx context.Context, init *pid1.Client, cmd pid1.Command, owner *pipes.Owner, dir string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, sbxerr.New(sbxerr.CloneFailed, "clones.make", "the clone was not made within %s", atMost))
	defer cancel()
	streams, err := pipes.New(false, true, owner)
	if err != nil {
		return err
	}
	said := listen(streams.Stderr)
	cmd.Stdout, cmd.Stderr = streams.Inside[1], streams.Inside[2]
	proc, err := init.Start(ctx, cmd)
	err = errors.Join(err, streams.CloseInside())
	if err != nil {
		err = errors.Join(startError(err, dir), streams.CloseOutside())
		<-said
		return err
	}
	exit, err := proc.Wait(ctx)
	var text string
	select {
	case text = <-said:
		err = errors.Join(err, streams.CloseOutside())
	case <-time.After(lastWords): // something else has its pipe
		err = errors.Join(err, streams.CloseOutside())
		text = <-said
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return errors.Join(ended(exit, text, dir), proc.Release())
}

// startError says of an image without a shell what it lacks.
func startError(err error, dir string) error {
	if errors.Is(err, syscall.ENOENT) {
		return noGit(dir, "/bin/sh")
	}
	return err
}

func noGit(dir, program string) error {
	return sbxerr.New(sbxerr.CloneImage, "clones.make", "the clone of %q is made by git inside, and the image has no %s", sbxerr.Clip(dir), program)
}

func ended(exit pid1.Exit, text, dir string) error {
	const op = "clones.make"
	switch {
	case exit.Signal != 0:
		return sbxerr.New(sbxerr.CloneFailed, op, "clone %q: git was ended by signal %d, as by a limit of memory", sbxerr.Clip(dir), exit.Signal)
	case exit.Code == exitNoGit:
		return noGit(dir, "git")
	case exit.Code == exitPartial:
		return sbxerr.WithRemedy(sbxerr.CloneSource, op, fmt.Errorf("host directory %q: it is a partial clone, whose objects are elsewhere", sbxerr.Clip(dir)),
			"make it a whole one, cloned without a filter; or "+takeCow)
	case exit.Code != 0:
		return sbxerr.New(sbxerr.CloneFailed, op, "clone %q: exit code %d: %s", sbxerr.Clip(dir), exit.Code, text)
	}
	return nil
}

// maxSaid bounds what is kept of the messages, in bytes.
const maxSaid = 2048

// listen reads what the command says until the pipe is closed.
func listen(from *os.File) <-chan string {
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(from, maxSaid)) // what was read before counts
		_, _ = io.Copy(io.Discard, from)
		said <- strings.ToValidUTF8(strings.TrimSpace(string(text)), "?")
	}()
	return said
}
