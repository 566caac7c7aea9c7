package uncharged

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/kernelfile"
)

// Sockets is the memory in bytes that all TCP and UDP sockets of the host hold,
// whatever their namespace is.
func Sockets() (int64, error) {
	text, err := kernelfile.Read("/proc/net/sockstat")
	if err != nil {
		return 0, err
	}
	return socketMemory(text)
}

// socketMemory reads lines such as "TCP: inuse 1 orphan 0 tw 2 alloc 1 mem 64".
func socketMemory(text string) (int64, error) {
	sum, found := int64(0), 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 2 && (f[0] == "TCP:" || f[0] == "UDP:") && f[len(f)-2] == "mem" {
			pages, err := strconv.ParseInt(f[len(f)-1], 10, 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+pages, found+1
		}
	}
	if found != 2 {
		return 0, errors.New("the kernel does not tell the memory of TCP and UDP")
	}
	return sum * int64(os.Getpagesize()), nil
}
