package base

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
)

// asset is what the build put in place, checked.
type asset struct {
	busybox []byte
	applets []string // names, sorted
}

// machines are the architectures for which caisson is built.
var machines = map[string]elf.Machine{
	"386": elf.EM_386, "amd64": elf.EM_X86_64, "arm": elf.EM_ARM, "arm64": elf.EM_AARCH64,
	"ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
}

func readAssets(files fs.FS) (*asset, error) {
	busybox, err := readAsset(files, "busybox")
	list, listErr := readAsset(files, "applets.txt")
	if err := errors.Join(err, listErr); err != nil {
		return nil, err
	}
	applets, err := parseApplets(string(list))
	return &asset{busybox, applets}, errors.Join(err, checkBinary(busybox))
}

func readAsset(files fs.FS, name string) ([]byte, error) {
	data, err := fs.ReadFile(files, "assets/"+name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this program was built without %q, which the image %q is made of", name, Name)
	}
	return data, err
}

// checkBinary reports why data cannot run alone in an empty root.
func checkBinary(data []byte) error {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("read the embedded busybox: %w", err)
	}
	var errs []error
	if want := machines[goruntime.GOARCH]; f.Machine != want {
		errs = append(errs, fmt.Errorf("the embedded busybox is for %s, not for %s", f.Machine, goruntime.GOARCH))
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		errs = append(errs, errors.New("the embedded busybox is not static: it names a loader"))
	}
	return errors.Join(errs...)
}

// appletName has the characters that names of commands have, "[[" included.
var appletName = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._+\[-]*$`)

// parseApplets reads the output of busybox --list. linuxrc, which is for
// initial RAM disks, is left out.
func parseApplets(list string) ([]string, error) {
	var applets []string
	var errs []error
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "linuxrc", line == "busybox":
		case !appletName.MatchString(line):
			errs = append(errs, fmt.Errorf("the list of applets holds %q, which is no name of a command", line))
		default:
			applets = append(applets, line)
		}
	}
	slices.Sort(applets)
	applets = slices.Compact(applets)
	if !slices.Contains(applets, "sh") {
		errs = append(errs, errors.New(`the list of applets lacks "sh"`))
	}
	return applets, errors.Join(errs...)
}
