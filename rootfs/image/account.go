package image

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// DefaultName is the name of a user that the image's passwd(5) lacks. DefaultHome is the
// directory of such a user.
const (
	DefaultName = "caisson"
	DefaultHome = "/home/" + DefaultName
)

// giveNames names u, and its group, where the image does not.
func (u *User) giveNames(users, groups [][]string) {
	if !u.listed {
		u.Name = freeName(users, u.UID)
	}
	if indexOf(groups, 2, strconv.FormatUint(uint64(u.GID), 10)) < 0 {
		u.group = freeName(groups, u.GID)
	}
}

// freeName is a name that none of rows has.
func freeName(rows [][]string, id uint32) string {
	name := DefaultName
	for indexOf(rows, 0, name) >= 0 {
		name += strconv.FormatUint(uint64(id), 10)
	}
	return name
}

// AddTo returns the image's passwd and group files with an entry for u: programs look their
// own user up (getpwuid(3)) and fail without one. A file that needs no entry is nil.
func (u User) AddTo(passwd, group io.Reader) (newPasswd, newGroup []byte, err error) {
	if !u.listed {
		line := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", u.Name, u.UID, u.GID, DefaultHome)
		if newPasswd, err = withLine(passwd, line); err != nil {
			return nil, nil, fmt.Errorf("read passwd: %w", err)
		}
	}
	if u.group != "" {
		if newGroup, err = withLine(group, fmt.Sprintf("%s:x:%d:\n", u.group, u.GID)); err != nil {
			return nil, nil, fmt.Errorf("read group: %w", err)
		}
	}
	return newPasswd, newGroup, nil
}

// Listed reports whether the image's files have an entry for u and its group.
func (u User) Listed() bool { return u.listed && u.group == "" }

func withLine(file io.Reader, line string) ([]byte, error) {
	data, err := readUserFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	return append(data, line...), nil
}
