package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// Bounds of what is read of an image's passwd(5) and group(5).
const (
	maxUserFile = 1 << 20
	maxUserName = 32
	maxGroups   = 64
	maxHome     = 1024
)

// isUserName reports whether s is what useradd(8) takes, with upper case and dots, which some
// images use. Names cannot begin like a number, so that nothing is ever both.
func isUserName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c != '.' && c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= maxUserName
}

// identity is one half of a user: a number or a name.
type identity struct {
	name string // empty: id counts
	id   uint32
}

// User is a user of an image, in the ids of a sandbox.
type User struct {
	UID, GID uint32
	GIDs     []uint32 // further groups
	Name     string   // in passwd(5), or the one that AddTo gives it
	Home     string   // its directory in passwd(5); empty: it has no entry there
	listed   bool     // passwd has an entry of the uid
	group    string   // for the gid, which group(5) lacks; empty: it has one
}

// userSpec is a user as written, with its syntax checked.
type userSpec struct {
	user     identity
	group    identity
	hasGroup bool
}

// ResolveUser turns user, of the form "user" or "user:group", into ids, each
// of which is at most 65535 so that it maps into a sandbox. passwd and group
// are the image's files, nil if it has none. Being hostile, they are read up
// to 1 MiB only, lines that make no sense are skipped, and the first entry of
// a name counts.
//
// Numbers are canonical decimals: "+0", "0x0", " 0", "00" and all that wraps
// around elsewhere are refused (CVE-2024-40635, CVE-2026-30892). A number
// names itself and is never looked up as a name. Only "0" and "root" can give
// uid 0, and only a group that is asked for gid 0 with another uid: what the
// image's files map to them by itself is refused.
//
// Without a group, GID is the primary group in passwd, else it equals UID, and
// GIDs are the groups that list the user, sorted, without GID and without 0.
// With a group, GIDs is empty.
func ResolveUser(user string, passwd, group io.Reader) (User, error) {
	u, err := resolveUser(user, passwd, group)
	if err != nil {
		return User{}, sbxerr.New(sbxerr.ImageUser, "image.user", "resolve user %s: %w", flow.Quote(user), err)
	}
	return u, nil
}

func resolveUser(user string, passwd, group io.Reader) (User, error) {
	spec, err := parseUser(user)
	if err != nil {
		return User{}, err
	}
	users, err := readTable(passwd, 7)
	if err != nil {
		return User{}, fmt.Errorf("read passwd: %w", err)
	}
	groups, err := readTable(group, 4)
	if err != nil {
		return User{}, fmt.Errorf("read group: %w", err)
	}
	u, err := findUser(spec.user, users)
	if err != nil {
		return User{}, err
	}
	if err := u.joinGroups(user, spec, groups); err != nil {
		return User{}, err
	}
	u.giveNames(users, groups)
	return u, nil
}

// joinGroups sets the groups of u, which user names.
func (u *User) joinGroups(user string, spec userSpec, groups [][]string) (err error) {
	if spec.hasGroup {
		u.GID, err = findGroup(spec.group, groups)
		if err == nil && u.GID == 0 && spec.group.name != "" && spec.group.name != "root" {
			err = fmt.Errorf("the image's group gives group %q the gid 0: ask for root or 0 by that name", spec.group.name)
		}
		return err
	}
	if u.GID == 0 && u.UID != 0 {
		return fmt.Errorf("the image's passwd gives it the group 0: ask for it as %q if that is meant", user+":0")
	}
	u.GIDs, err = memberships(u.Name, u.GID, groups)
	return err
}

func parseUser(user string) (userSpec, error) {
	u, g, hasGroup := strings.Cut(user, ":")
	spec := userSpec{hasGroup: hasGroup}
	var err, groupErr error
	spec.user, err = parseIdentity("user", u)
	if hasGroup {
		spec.group, groupErr = parseIdentity("group", g)
	}
	return spec, errors.Join(err, groupErr)
}

func parseIdentity(what, s string) (identity, error) {
	if isUserName(s) {
		return identity{name: s}, nil
	}
	id, err := parseID(s)
	if err != nil {
		return identity{}, fmt.Errorf("%s %s is neither a name nor a number from 0 to %d", what, flow.Quote(s), MaxID)
	}
	return identity{id: id}, nil
}

var errID = errors.New("not a canonical id")

// parseID takes the one decimal spelling of each id.
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, errID
	}
	return uint32(n), nil
}

// readTable returns the lines of a passwd or group file as fields. A line of
// another number of fields, or whose name could not be asked for, is skipped.
func readTable(r io.Reader, fields int) ([][]string, error) {
	data, err := readUserFile(r)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for line := range bytes.Lines(data) {
		if bytes.Count(line, []byte(":")) != fields-1 { // most of a hostile one take no memory
			continue
		}
		if row := strings.Split(strings.TrimSuffix(string(line), "\n"), ":"); isUserName(row[0]) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// readUserFile reads a passwd or group file, nil if there is none.
func readUserFile(r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(r, maxUserFile+1))
	if err == nil && len(data) > maxUserFile {
		err = fmt.Errorf("it has more than %d bytes", maxUserFile)
	}
	return data, err
}

// findUser returns who without its groups. Without an entry it has no name.
func findUser(who identity, users [][]string) (User, error) {
	if who.name == "" {
		i := indexOf(users, 2, strconv.FormatUint(uint64(who.id), 10))
		if i < 0 {
			return User{UID: who.id, GID: who.id}, nil
		}
		return readUser(users[i])
	}
	i := indexOf(users, 0, who.name)
	if i < 0 {
		return User{}, fmt.Errorf("the image's passwd has no user %q", who.name)
	}
	u, err := readUser(users[i])
	if err == nil && u.UID == 0 && u.Name != "root" {
		err = fmt.Errorf("the image's passwd gives user %q the uid 0: ask for root or 0 by that name", u.Name)
	}
	return u, err
}

// indexOf returns the first of rows that has value in the column, or -1.
func indexOf(rows [][]string, column int, value string) int {
	return slices.IndexFunc(rows, func(row []string) bool { return row[column] == value })
}

// readUser takes a user from a line of passwd.
func readUser(row []string) (u User, err error) {
	u = User{Name: row[0], Home: cleanHome(row[5]), listed: true}
	if u.UID, err = parseID(row[2]); err != nil {
		return User{}, fmt.Errorf("the image's passwd gives user %q the uid %s: must be 0 to %d", u.Name, flow.Quote(row[2]), MaxID)
	}
	if u.GID, err = parseID(row[3]); err != nil {
		return User{}, fmt.Errorf("the image's passwd gives user %q the gid %s: must be 0 to %d", u.Name, flow.Quote(row[3]), MaxID)
	}
	return u, nil
}

// cleanHome drops a home that no program could use.
func cleanHome(dir string) string {
	if !path.IsAbs(dir) || len(dir) > maxHome || strings.ContainsFunc(dir, unicode.IsControl) {
		return ""
	}
	return path.Clean(dir)
}

func findGroup(which identity, groups [][]string) (uint32, error) {
	if which.name == "" {
		return which.id, nil
	}
	i := indexOf(groups, 0, which.name)
	if i < 0 {
		return 0, fmt.Errorf("the image's group has no group %q", which.name)
	}
	gid, err := parseID(groups[i][2])
	if err != nil {
		return 0, fmt.Errorf("the image's group gives group %q the gid %s: must be 0 to %d", which.name, flow.Quote(groups[i][2]), MaxID)
	}
	return gid, nil
}

// memberships returns the groups that list name, besides its primary one.
// Group 0 is root's and comes by being asked for only (CVE-2022-36109).
func memberships(name string, primary uint32, groups [][]string) ([]uint32, error) {
	var gids []uint32
	for _, row := range groups {
		gid, err := parseID(row[2])
		if name == "" || err != nil || gid == 0 || gid == primary || !slices.Contains(strings.Split(row[3], ","), name) {
			continue
		}
		gids = append(gids, gid)
	}
	slices.Sort(gids)
	gids = slices.Compact(gids)
	if len(gids) > maxGroups {
		return nil, fmt.Errorf("the image's group puts user %q into %d groups: at most %d", name, len(gids), maxGroups)
	}
	return gids, nil
}
