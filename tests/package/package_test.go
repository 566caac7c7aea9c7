// Package packagetest looks into the packages that make package built.
package packagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/need"
)

// machines are the architectures of packages, by their names for Debian.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// debs returns the packages for Debian by architecture.
func debs(t *testing.T) map[string]string {
	t.Helper()
	dir := need.Env(t, "CAISSON_PACKAGE_DIR", "the directory of the packages: make package")
	found := map[string]string{}
	for arch := range machines {
		files, err := filepath.Glob(filepath.Join(dir, "*_"+arch+".deb"))
		if err != nil || len(files) > 1 {
			t.Fatal(files, err)
		}
		if len(files) == 1 {
			found[arch] = files[0]
		}
	}
	if len(found) == 0 {
		t.Fatalf("no .deb in %s", dir)
	}
	return found
}

// output is what a program prints.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, &errOut)
	}
	return out
}

// entry is one file of a package.
type entry struct {
	header *tar.Header
	data   []byte
}

func entries(t *testing.T, archive io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Clean("/"+h.Name)] = entry{h, data}
	}
}

// programs are those that a package has to have, the engine among them.
var programs = []string{
	"/usr/bin/caisson", "/usr/bin/caissond", "/usr/libexec/caisson/caisson-whole", "/usr/libexec/caisson/caisson-init",
	"/usr/libexec/caisson/caisson-gateway", "/usr/libexec/caisson/caisson-images", "/usr/libexec/caisson/caisson-shim", "/usr/libexec/caisson/containerd",
	"/usr/libexec/caisson/containerd-shim-runc-v2", "/usr/libexec/caisson/runc",
}

var others = []string{
	"/usr/lib/systemd/system/caissond.service", "/usr/lib/systemd/system/caisson-sandboxes.service", "/usr/lib/sysusers.d/caisson.conf",
	"/usr/lib/tmpfiles.d/caisson.conf", "/etc/caisson/config.yaml", "/usr/share/man/man1/caisson.1.gz", "/usr/share/man/man1/caisson-run.1.gz",
	"/usr/share/man/man1/caisson-mcp.1.gz", "/usr/share/man/man8/caissond.8.gz", "/usr/share/bash-completion/completions/caisson",
	"/usr/share/zsh/vendor-completions/_caisson", "/usr/share/fish/vendor_completions.d/caisson.fish", "/usr/share/doc/caisson/copyright",
	"/usr/share/doc/caisson/licences.gz", "/usr/share/doc/caisson/sbom.cdx.json", "/usr/share/doc/caisson/docs/how-to/install.md",
}

func TestContent(t *testing.T) {
	for arch, deb := range debs(t) {
		files := entries(t, bytes.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb)))
		for _, name := range append(slices.Clone(programs), others...) {
			if _, ok := files[name]; !ok {
				t.Errorf("%s: no %s", arch, name)
			}
		}
		for name, f := range files {
			want := int64(0o644)
			if f.header.Typeflag == tar.TypeDir || slices.Contains(programs, name) {
				want = 0o755
			}
			if h := f.header; h.Mode&0o7777 != want || h.Uid != 0 || h.Gid != 0 || h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeReg {
				t.Errorf("%s: %s has mode %o, type %c, owner %d:%d", arch, name, h.Mode, h.Typeflag, h.Uid, h.Gid)
			}
		}
		checkPrograms(t, arch, files)
		checkBill(t, arch, files["/usr/share/doc/caisson/sbom.cdx.json"].data)
		if st, err := os.Stat(deb); err != nil || st.Size() > 60e6 {
			t.Errorf("%s: %v bytes, at most 60 MB; %v", arch, st.Size(), err)
		}
	}
}

// Each program is of the architecture, and needs no loader of the host: an offline host brings
// nothing.
func checkPrograms(t *testing.T, arch string, files map[string]entry) {
	t.Helper()
	for _, name := range programs {
		f, err := elf.NewFile(bytes.NewReader(files[name].data))
		if err != nil {
			t.Errorf("%s: %s: %v", arch, name, err)
			continue
		}
		if f.Machine != machines[arch] || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s: %s is for %s, or names a loader", arch, name, f.Machine)
		}
	}
	if !bytes.Contains(files["/usr/bin/caissond"].data, []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00"+string([]byte{byte(machines[arch]), 0}))) &&
		!bytes.Contains(files["/usr/bin/caissond"].data, []byte("\x7fELF\x02\x01\x01\x03\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00"+string([]byte{byte(machines[arch]), 0}))) {
		t.Errorf("%s: the daemon has no busybox of this architecture", arch)
	}
}

// The bill names what is linked, C included, each with a version and a licence.
func checkBill(t *testing.T, arch string, raw []byte) {
	t.Helper()
	var bill struct {
		BOMFormat  string
		Components []struct {
			Name, Version string
			Licenses      []any
		}
	}
	if err := json.Unmarshal(raw, &bill); err != nil || bill.BOMFormat != "CycloneDX" {
		t.Fatalf("%s: %+v, %v", arch, bill, err)
	}
	var names []string
	for _, c := range bill.Components {
		names = append(names, c.Name)
		if c.Version == "" || len(c.Licenses) == 0 {
			t.Errorf("%s: %s has version %q and licences %v", arch, c.Name, c.Version, c.Licenses)
		}
	}
	for _, want := range []string{"std", "glibc", "libseccomp", "busybox", "github.com/containerd/containerd/v2", "github.com/opencontainers/runc", "github.com/spf13/cobra"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s: the bill lacks %s", arch, want)
		}
	}
}

func TestControl(t *testing.T) {
	for arch, deb := range debs(t) {
		files := entries(t, bytes.NewReader(output(t, "dpkg-deb", "--ctrl-tarfile", deb)))
		if got := string(files["/conffiles"].data); got != "/etc/caisson/config.yaml\n" {
			t.Errorf("%s: conffiles %q", arch, got)
		}
		for _, script := range []string{"/preinst", "/postinst", "/prerm", "/postrm"} {
			checkScript(t, arch, script, files[script].data)
		}
		control := string(files["/control"].data)
		if !strings.Contains(control, "\nArchitecture: "+arch+"\n") || strings.Contains(control, "Depends:") {
			t.Errorf("%s: control\n%s", arch, control)
		}
		version := regexp.MustCompile(`(?m)^version=(\S+)`).FindSubmatch(files["/postinst"].data)
		whole := entries(t, bytes.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb)))
		if version == nil || !bytes.Contains(whole["/usr/bin/caissond"].data, version[1]) {
			t.Errorf("%s: the scripts keep programs for version %q, which is not that of the daemon", arch, version)
		}
	}
}

func checkScript(t *testing.T, arch, name string, text []byte) {
	t.Helper()
	if regexp.MustCompile(`@[A-Z_]+@`).Match(text) {
		t.Errorf("%s: %s has a place without a value", arch, name)
	}
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(text) == 0 {
		t.Errorf("%s: %s of %d bytes: %v: %s", arch, name, len(text), err, out)
	}
}

// The tarball has the same files and scripts as the .deb.
func TestTarball(t *testing.T) {
	for arch, deb := range debs(t) {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(deb), "caisson-*-linux-"+arch+".tar.gz"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		f, err := os.Open(found[0])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		unzipped, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		packed := entries(t, unzipped)
		top := "/" + strings.TrimSuffix(filepath.Base(found[0]), ".tar.gz")
		for name, want := range entries(t, bytes.NewReader(output(t, "dpkg-deb", "--fsys-tarfile", deb))) {
			name = strings.Replace(name, "/vendor-completions/", "/site-functions/", 1)
			if want.header.Typeflag != tar.TypeReg {
				continue
			}
			if got := packed[top+"/root"+name]; !bytes.Equal(got.data, want.data) || got.header.Mode&0o777 != want.header.Mode&0o777 {
				t.Errorf("%s: %s is missing or differs from the .deb", arch, name)
			}
		}
		for _, script := range []string{"/install.sh", "/scripts/preinstall.sh", "/scripts/postinstall.sh", "/scripts/preremove.sh", "/scripts/postremove.sh"} {
			checkScript(t, arch, script, packed[top+script].data)
		}
	}
}

func TestSums(t *testing.T) {
	for _, deb := range debs(t) {
		cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = filepath.Dir(deb)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// The programs name their modules themselves.
func TestDeps(t *testing.T) {
	program := filepath.Join(need.Bin(t), "caisson")
	if out := string(output(t, program, "version", "--deps")); !strings.Contains(out, "\ngithub.com/spf13/cobra v") {
		t.Errorf("version --deps: %q", out)
	}
}
