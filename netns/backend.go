package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tablesInUse are the names of the tables in a namespace, by what programmed
// them. It sees what no command of iptables shows: tables of nft's own, and
// those of the backend that the host's command is not for.
type tablesInUse struct {
	nft    []string          // "ip filter", "inet mine"
	legacy map[family]string // "filter nat"
}

// nftFamilies are the families of linux/netfilter.h (NFPROTO_*) as nft calls
// them.
var nftFamilies = map[uint8]string{1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}

// nftFamily is how nft calls f.
var nftFamily = map[family]string{familyV4: "ip", familyV6: "ip6"}

// legacyNames lists the legacy tables of the namespace; it is absent on a
// kernel without them.
var legacyNames = map[family]string{
	familyV4: "/proc/thread-self/net/ip_tables_names",
	familyV6: "/proc/thread-self/net/ip6_tables_names",
}

// readTablesInUse reads the calling thread's namespace.
func readTablesInUse() (tablesInUse, error) {
	use := tablesInUse{legacy: map[family]string{}}
	for f, path := range legacyNames {
		names, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return use, err
		}
		use.legacy[f] = strings.Join(strings.Fields(string(names)), " ")
	}
	var err error
	use.nft, err = nftTables()
	return use, err
}

// nftTables names the tables of nft, of every family.
func nftTables() ([]string, error) {
	tables, err := dumpNFT(unix.NFT_MSG_GETTABLE)
	var names []string
	for _, t := range tables {
		names = append(names, nftFamilies[t.family]+" "+string(bytes.TrimRight(t.attributes[unix.NFTA_TABLE_NAME], "\x00")))
	}
	return names, err
}

// none reports that nothing was programmed.
func (u tablesInUse) none() bool {
	return len(u.nft) == 0 && u.legacy[familyV4]+u.legacy[familyV6] == ""
}

// shown lists the tables of f that a command for b shows.
func (u tablesInUse) shown(f family, b backend) (names []string) {
	if b == backendLegacy {
		return strings.Fields(u.legacy[f])
	}
	for _, name := range u.nft {
		if isIPTables(f, name) {
			names = append(names, strings.TrimPrefix(name, nftFamily[f]+" "))
		}
	}
	return names
}

// backend returns the one that has tables of f, so that they are compared by the
// command that sees them, also after the host's own became another. With tables of neither or both it is the host's.
func (u tablesInUse) backend(f family) backend {
	nft := slices.ContainsFunc(u.nft, func(name string) bool { return isIPTables(f, name) })
	switch legacy := u.legacy[f] != ""; {
	case nft && !legacy:
		return backendNFT
	case legacy && !nft:
		return backendLegacy
	}
	return backendAny
}

// isIPTables reports whether the nft table is one that iptables shows.
func isIPTables(f family, nftTable string) bool {
	family, name, _ := strings.Cut(nftTable, " ")
	return family == nftFamily[f] && slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, name)
}

// foreign lists the tables that none of the commands that are used for the
// families shows.
func (u tablesInUse) foreign(used map[family]backend) []Difference {
	var found []Difference
	for _, name := range u.nft {
		shown := false
		for f, b := range used {
			shown = shown || b == backendNFT && isIPTables(f, name)
		}
		if !shown {
			found = append(found, Difference{Name: "table", Declared: "absent", Live: "nft " + name})
		}
	}
	for _, f := range []family{familyV4, familyV6} {
		if names := u.legacy[f]; names != "" && used[f] != backendLegacy {
			found = append(found, Difference{Name: "table", Declared: "absent", Live: fmt.Sprintf("legacy %s %s", f, names)})
		}
	}
	return found
}
