package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// roam tries to open each of the paths on standard input, to list it if it is
// a directory, and to connect to it if it is a socket.
func roam() error {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	paths := strings.Split(string(data), "\x00")
	for _, path := range paths {
		for how, try := range map[string]func() string{
			"read":    func() string { return tryOpen(path, unix.O_RDONLY) },
			"write":   func() string { return tryOpen(path, unix.O_WRONLY) },
			"make-in": createIn(path),
			"connect": func() string { return connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: path}) },
		} {
			if got := try(); got == ok || got == "ECONNREFUSED" {
				fmt.Println(how, path)
			}
		}
	}
	fmt.Fprintln(os.Stderr, len(paths), "tried")
	return nil
}
