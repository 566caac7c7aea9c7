package cli

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// notFound is the code of a shell that finds no such program (sh(1)).
const notFound = 127

// page shows text on the terminal by PAGER, or less(1), as git does. Without such a program it
// writes text itself.
func (a *App) page(text []byte) error {
	pager, named := os.LookupEnv("PAGER")
	if named && (pager == "" || pager == "cat") {
		_, err := a.Stdout.Write(text)
		return OwnOutput(err)
	}
	cmd := exec.Command("sh", "-c", cmp.Or(pager, "less"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), a.Stdout, a.Stderr
	cmd.Env = os.Environ()
	if _, set := os.LookupEnv("LESS"); !set {
		cmd.Env = append(cmd.Env, "LESS=FRX") // nothing to leave where it fits, colours, and it stays on the screen
	}
	signal.Ignore(syscall.SIGINT) // it is the pager's
	defer signal.Reset(syscall.SIGINT)
	err := cmd.Run()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited) && exited.ExitCode() != notFound, errors.Is(err, syscall.EPIPE): // a person left it
		return nil
	case err != nil:
		_, err = a.Stdout.Write(text)
	}
	return OwnOutput(err)
}
