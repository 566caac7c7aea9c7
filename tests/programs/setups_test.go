package programs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// index is the name of the one host that set-ups reach. It leads to a server of the test.
const index = "index.example"

// setup is a daemon whose profile dev has root inside, and what the index serves.
type setup struct {
	*harness.Daemon
	mux *http.ServeMux
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{mux: http.NewServeMux()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path, r.URL.RawPath = strings.Replace(r.URL.Path, "/./", "/", 1), "" // as apt asks, which follows no redirection from there
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.Daemon = harness.StartWith(t, fmt.Sprintf("network: {map: {%s: %q}}\nprofiles: {fill: {user: root, root_user: setup, seccomp: compat, rootfs: rw, memory: 2G, pids: 1024, merge_caches: true}%s}\n", index, server.Listener.Addr(), greeting))
	return s
}

// serve serves a directory below the path.
func (s *setup) serve(path, dir string) {
	s.mux.Handle(path, http.StripPrefix(path, http.FileServer(http.Dir(dir))))
}

// sandbox makes a sandbox of the profile dev that reaches the index, and returns a shell in it.
// What the shell is given has to succeed, and to print what is wanted.
func (s *setup) sandbox(t *testing.T, image string, flags ...string) func(script, want string) {
	t.Helper()
	id := strings.TrimSpace(s.Run(t, append([]string{"create", "--profile", "dev", "--image", image, "--allow", index}, flags...)...).Stdout)
	t.Cleanup(func() { s.Run(t, "rm", "--force", id) })
	return func(script, want string) {
		t.Helper()
		r := s.Try("exec", id, "--", "sh", "-ec", script)
		if r.Code != 0 || !strings.HasSuffix(r.Stdout, want) {
			t.Fatalf("%s: exit code %d, want %q:\n%s%s", script, r.Code, want, r.Stdout, r.Stderr)
		}
	}
}

// cached fills a cache by one run that reaches the index, and has another one that reaches nothing
// use it. Without the cache that one fails.
func (s *setup) cached(t *testing.T, cache string, flags []string, fill, use, want string) {
	t.Helper()
	run := func(script string, more ...string) harness.Result {
		args := append(append([]string{"run", "--image", "tools"}, flags...), more...)
		return s.Try(append(args, "--", "sh", "-ec", script)...)
	}
	if r := run(fill, "--profile", "fill", "--cache", cache, "--allow", index); r.Code != 0 {
		t.Fatalf("fill: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := run(use, "--profile", "dev", "--network", "none"); r.Code == 0 {
		t.Errorf("without the cache: %s", r.Stdout)
	}
	if r := run(use, "--profile", "dev", "--network", "none", "--cache", cache); r.Code != 0 || !strings.HasSuffix(r.Stdout, want) {
		t.Errorf("exit code %d, want %q:\n%s%s", r.Code, want, r.Stdout, r.Stderr)
	}
	s.Run(t, "volume", "rm", "caisson-cache-"+cache)
}

// TestSetups sets up what real projects need, as root inside, from indexes on the loopback.
func TestSetups(t *testing.T) {
	need.Tools(t, "mkfs.ext4", "dpkg-deb", "apt-get", "dpkg-scanpackages", "npm", "node", "python3", "go")
	s := newSetup(t)
	t.Run("debian", func(t *testing.T) {
		s.debian(t)
		t.Run("apt", s.installsPackages)
		t.Run("dpkg", s.installsPackage)
		t.Run("users", s.makesUsers)
	})
	t.Run("tools", func(t *testing.T) {
		s.tools(t)
		t.Run("npm", s.installsNode)
		t.Run("pip", s.installsPython)
		t.Run("go", s.buildsGo)
		t.Run("template", s.beginsInstalled)
	})
}

// mirrored are what apt is to install: programs with set-id bits, a group and a user that
// scripts make, and libraries.
const mirrored = "sudo openssh-client uuid-runtime less tree"

// debian makes an image of a small Debian, and serves a mirror with what it has not.
func (s *setup) debian(t *testing.T) {
	t.Helper()
	dir, err := filepath.Abs("../../build/debian")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/debian.sh")
	if err != nil {
		t.Fatal(err)
	}
	made, whole := filepath.Join(dir, "made"), string(script)+mirrored
	if was, err := os.ReadFile(made); err != nil || string(was) != whole { // else it is of an earlier test
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"testdata/debian.sh", dir}, strings.Fields(mirrored)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		write(t, made, whole)
	}
	s.serve("/debian/", filepath.Join(dir, "mirror"))
	s.Run(t, "image", "import", "--name", "debian", filepath.Join(dir, "root.tar"))
	t.Cleanup(func() { s.Run(t, "image", "rm", "debian") })
}

// installsPackages: apt-get as in a virtual machine, with its user _apt, set-id programs, and
// scripts that make users and groups. The image stays as it was.
func (s *setup) installsPackages(t *testing.T) {
	sh := s.sandbox(t, "debian")
	sh("whoami; echo $HOME; id -u; id -gn", "root\n/root\n0\nroot\n")
	sh("echo 'deb [trusted=yes] http://"+index+"/debian ./' > /etc/apt/sources.list; apt-get -q update", "Reading package lists...\n")
	sh("export DEBIAN_FRONTEND=noninteractive; apt-get -q install -y --no-install-recommends "+mirrored+" 2>&1 | tee /tmp/log | grep -E '^(E:|dpkg: error)' || echo installed", "installed\n")
	sh("dpkg --audit; dpkg-query -W -f '${Status}\n' "+mirrored+" | sort | uniq -c | tr -s ' '", " 5 install ok installed\n")
	sh("stat -c '%A %U:%G' /usr/bin/sudo /usr/bin/ssh-agent", "-rwsr-xr-x root:root\n-rwxr-sr-x root:_ssh\n")
	sh("getent group sudo _ssh uuidd | cut -d: -f1; ssh -V 2>&1 | cut -c1-7; uuidgen | wc -c", "sudo\n_ssh\nuuidd\nOpenSSH\n37\n")
	sh("apt-get -q purge -y tree >/tmp/log 2>&1; test ! -e /usr/bin/tree; apt-get -q install -y --reinstall less >/tmp/log 2>&1; echo again", "again\n")
	if r := s.Try("run", "--profile", "dev", "--image", "debian", "--", "sh", "-c", "test ! -e /usr/bin/sudo"); r.Code != 0 {
		t.Errorf("another sandbox of the image: %d, %s", r.Code, r.Stderr)
	}
}

// installsPackage: dpkg with a package of one's own, whose script makes a user, and whose
// programs have set-id bits that raise nothing.
func (s *setup) installsPackage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p/DEBIAN/control"), "Package: maker\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.example>\nDescription: makes a user\n")
	write(t, filepath.Join(dir, "p/DEBIAN/postinst"), "#!/bin/sh\nset -e\ngroupadd --system makers\nuseradd -m -g makers -s /bin/sh maker\nchown maker:makers /usr/bin/as-maker\nchmod 6755 /usr/bin/as-maker\nmkfifo /var/lib/maker.fifo\n")
	write(t, filepath.Join(dir, "p/usr/bin/as-root"), "#!/bin/sh\nid -u\n")
	write(t, filepath.Join(dir, "p/usr/bin/as-maker"), "#!/bin/sh\nid -u\n")
	command(t, dir, "sh", "-ec", "chmod 0755 p/DEBIAN/postinst; cp /bin/true p/usr/bin/as-group; chmod 0755 p/usr/bin/*; fakeroot sh -ec 'chmod 4755 p/usr/bin/as-root; chown 0:8 p/usr/bin/as-group; chmod 2755 p/usr/bin/as-group; dpkg-deb -b p maker.deb'")
	sh := s.sandbox(t, "debian", "--mount", "type=bind,src="+dir+",dst=/packages,ro")
	sh("dpkg -i /packages/maker.deb; stat -c '%A %U:%G' /usr/bin/as-*", "-rwxr-sr-x root:mail\n-rwsr-sr-x maker:makers\n-rwsr-xr-x root:root\n")
	sh("stat -c '%U %A' /home/maker /var/lib/maker.fifo", "maker drwxr-xr-x\nroot prw-r--r--\n")
	sh("cp /usr/bin/id /usr/bin/id2; chmod 4755 /usr/bin/id2; su maker -c '/usr/bin/id2 -u; id -u' | uniq | wc -l", "1\n") // the bit raises nobody
	sh("dpkg -P maker && userdel -r maker && test ! -e /usr/bin/as-root && echo gone", "gone\n")
}

// makesUsers: an image of orchestrators is used as they use it.
func (s *setup) makesUsers(t *testing.T) {
	sh := s.sandbox(t, "debian")
	sh("groupadd -g 1500 team && useradd -m -u 1500 -g team -s /bin/bash ann && id ann", "uid=1500(ann) gid=1500(team) groups=1500(team)\n")
	sh("su - ann -c 'whoami; echo $HOME; touch f; stat -c %U f'", "ann\n/home/ann\nann\n")
	sh("echo 'ann:x' | chpasswd; usermod -aG mail ann; chfn -f Ann ann; gpasswd -d ann mail; passwd -l ann; userdel -r ann; test ! -e /home/ann; echo gone", "gone\n")
	sh("cd /workspace; install -d -o 1500 -g 7 -m 2775 d; touch d/f; stat -c '%u:%g' d/f; chown -R 0:0 d; rm -r d; pwd", "0:7\n/workspace\n")
}

// tools makes the image of the host's node, npm and python.
func (s *setup) tools(t *testing.T) {
	t.Helper()
	args := []string{"image", "from-host", "tools", "--package", "nodejs", "--package", "python3-venv"}
	if out, err := exec.CommandContext(t.Context(), "dpkg-query", "-W", "-f", "${db:Status-Status}", "npm").Output(); err == nil && string(out) == "installed" { // others than Debian's have it in nodejs
		args = append(args, "--package", "npm")
	}
	if own := "/usr/lib/node_modules/npm"; exists(own) { // npm may have upgraded itself there
		args = append(args, "--path", own)
	}
	s.Run(t, args...)
	t.Cleanup(func() { s.Run(t, "image", "rm", "tools") })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command runs a program of the host.
func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// write makes a file, and the directories above it.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
