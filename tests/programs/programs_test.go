package programs

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// program is one row: a script that ends with 0 and says what it should.
type program struct {
	name, script string
	flags        []string
	want         string // in the output
	never        string // in either output
	code         int
}

const (
	clean   = `echo 'int main(void) { return 0; }' > /tmp/a.c; `
	garbage = `let keep = [], n = 0
for (const end = Date.now() + 4000; Date.now() < end; n++) {
  const o = {}
  for (let i = 0; i < 2000; i++) o["k" + i + "_" + n] = { v: "x".repeat(50) + n + i }
  keep.push(o)
  if (keep.length > 150) keep.shift()
}
console.log("survived", require("v8").getHeapStatistics().heap_size_limit < 512 * 1048576)`
	// More threads ask than may have a netlink socket; each gives its own back.
	questions = `
import ctypes, threading
libc, answered = ctypes.CDLL(None), []
def ask():
    for _ in range(100):
        list = ctypes.c_void_p()
        if libc.getifaddrs(ctypes.byref(list)) == 0:
            libc.freeifaddrs(list); answered.append(1)
threads = [threading.Thread(target=ask) for _ in range(64)]
for t in threads: t.start()
for t in threads: t.join()
print("answered", len(answered))`
	ofdLock = `
import errno, fcntl, struct
f, lock = open("/tmp/l", "w"), struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
for command in 36, 37, 38:
    try: fcntl.fcntl(f, command, lock); print("locked")
    except OSError as e: print(errno.errorcode[e.errno])
fcntl.lockf(f, fcntl.LOCK_EX); print("fell back")`
)

var works = []program{
	{name: "node os.networkInterfaces", script: `node -e 'console.log(Object.keys(os.networkInterfaces()))'`, want: "[ 'lo' ]"},
	{name: "node garbage in 512M", script: "cat > /tmp/g.js <<'X'\n" + garbage + "\nX\nnode /tmp/g.js", flags: []string{"-m", "512M"}, want: "survived true"},
	{name: "java heap in 512M", script: `java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2 == "MaxHeapSize" {print ($4 < 512 * 1048576)}'`, flags: []string{"-m", "512M"}, want: "1"},
	{name: "python interfaces", script: `python3 -c 'import socket; print(socket.if_nameindex())'`, want: "[(1, 'lo')]"},
	{name: "hostname -I", script: `hostname -I && echo asked`, want: "asked"},
	{name: "ip addr", script: `ip addr`, want: "inet 127.0.0.1/8"},
	{name: "many questions at once", script: "cat > /tmp/q.py <<'X'\n" + questions + "\nX\npython3 /tmp/q.py", want: "answered 6400"},
	{name: "python multiprocessing", script: `python3 -c 'import multiprocessing as m; print(sum(m.Pool(2).map(abs, range(100))))'`, want: "4950"},
	{name: "python sqlite3", script: `python3 -c 'import sqlite3 as s; c = s.connect("/tmp/d"); c.execute("pragma journal_mode=wal"); c.execute("create table t(a)"); c.execute("insert into t values(7)"); c.commit(); print(s.connect("/tmp/d").execute("select a from t").fetchall())'`, want: "[(7,)]"},
	{name: "getaddrinfo", script: `python3 -c 'import socket; print(sorted({a[4][0] for a in socket.getaddrinfo("localhost", 80)}))'`, want: "127.0.0.1"},
	{name: "locks of open files", script: "python3 - <<'X'\n" + ofdLock + "\nX", want: "EINVAL\nEINVAL\nEINVAL\nfell back"},
	{name: "flock", script: `flock /tmp/lock echo held`, want: "held"},
	{name: "gcc", script: clean + `gcc -o /tmp/a /tmp/a.c && /tmp/a && echo built`, want: "built"},
	{name: "address sanitizer", script: clean + `gcc -fsanitize=address -o /tmp/a /tmp/a.c && /tmp/a && echo clean`, want: "clean", never: "LeakSanitizer"},
	{name: "leak check with tracing", script: `echo 'int main(void) { __builtin_malloc(9); return 0; }' > /tmp/a.c; gcc -O0 -fsanitize=address -o /tmp/a /tmp/a.c && /tmp/a`,
		flags: []string{"--profile", "debug"}, code: 1, want: "9 byte(s) leaked"},
	{name: "git init, commit and gc", script: `cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git gc -q && git log --oneline | wc -l`, want: "1"},
	{name: "large files in /tmp", script: `head -c 200000000 /dev/zero > /tmp/big && stat -c %s /tmp/big`, want: "200000000"},
	{name: "fakeroot", script: `cd /tmp && touch f && fakeroot sh -c 'id -u; chown 7 f; stat -c %u f' | tr '\n' ' '`, want: "0 7 "},
	{name: "valgrind", script: clean + `gcc -o /tmp/a /tmp/a.c && valgrind /tmp/a`, want: "ERROR SUMMARY: 0 errors"},
	{name: "groupadd", script: `groupadd x`, code: 10, never: "audit"}, // /etc/group is read-only
}

// fails are the rows that stay refused, so that the page about them is true.
var fails = []program{
	{name: "leak check without tracing", script: clean + `gcc -fsanitize=address -o /tmp/a /tmp/a.c && LSAN_OPTIONS= /tmp/a`, code: 1, want: "LeakSanitizer"},
	{name: "set-group-id directory", script: `mkdir /tmp/d && chmod 2775 /tmp/d`, code: 1, want: "Operation not permitted"},
	{name: "namespaces", script: `unshare -U true`, code: 1, want: "Operation not permitted"},
	{name: "changes by netlink", script: `ip link set lo mtu 1280`, flags: []string{"--image", "base"}, code: 2, want: "Operation not permitted"},
}

func TestPrograms(t *testing.T) {
	makeImage(t)
	for name, rows := range map[string][]program{"works": works, "fails": fails} {
		for _, p := range rows {
			t.Run(name+"/"+p.name, p.run)
		}
	}
	t.Run("server on ::1", servesIPv6)
}

func (p program) run(t *testing.T) {
	flags := append([]string{"run", "--image", "programs"}, p.flags...)
	r := daemon.Try(append(flags, "--", "sh", "-c", p.script)...)
	said := r.Stdout + r.Stderr
	if r.Code != p.code || !strings.Contains(said, p.want) || p.never != "" && strings.Contains(said, p.never) {
		t.Errorf("exit code %d, want %d with %q:\n%s", r.Code, p.code, p.want, said)
	}
}

// servesIPv6: a server of Node on ::1 alone answers on the published port.
func servesIPv6(t *testing.T) {
	const server = `require("http").createServer((q, a) => a.end("six")).listen(8080, "::1")`
	id := strings.TrimSpace(daemon.Run(t, "run", "-d", "--image", "programs", "-p", "0:8080", "--", "node", "-e", server).Stdout)
	t.Cleanup(func() { daemon.Run(t, "rm", "-f", id) })
	address, _, _ := strings.Cut(strings.TrimSpace(daemon.Run(t, "port", id).Stdout), " -> ")
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // nothing tells that it listens
		if said, e := get(address); e == nil {
			if said != "six" {
				t.Errorf("it says %q", said)
			}
			return
		} else {
			err = e
		}
	}
	t.Error(err)
}

func get(address string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}
