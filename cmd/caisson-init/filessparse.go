package main

import "syscall"

// holeSize is the smallest hole that is kept: a block of most file systems.
const holeSize = 4096

// writeSparse writes b at the offset of the new file fd, and leaves holes for blocks of
// zeros: the stream says nothing of holes, and a file that takes no space on the other
// side should take none here. endSparse must follow the last of them.
func writeSparse(fd int, b []byte) error {
	for len(b) > 0 {
		n := blocks(b, false)
		if err := writeFull(fd, b[:n]); err != nil {
			return err
		}
		hole := blocks(b[n:], true)
		if hole > 0 {
			if _, err := syscall.Seek(fd, int64(hole), 1); err != nil {
				return err
			}
		}
		b = b[n+hole:]
	}
	return nil
}

// endSparse makes the file as long as what was written, which may end in a hole.
func endSparse(fd int) error {
	size, err := syscall.Seek(fd, 0, 1)
	if err != nil {
		return err
	}
	return syscall.Ftruncate(fd, size)
}

// blocks is how much of b begins with blocks that are zeros, or that are not. What is
// less than a block is no hole.
func blocks(b []byte, zero bool) int {
	n := 0
	for n < len(b) {
		next := b[n:min(n+holeSize, len(b))]
		if (len(next) == holeSize && isZero(next)) != zero {
			break
		}
		n += len(next)
	}
	return n
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
