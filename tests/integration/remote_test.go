package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// elsewhere is a daemon that serves the network.
type elsewhere struct{ harness.Remote }

func startElsewhere(t testing.TB, more string, config ...string) elsewhere {
	t.Helper()
	return elsewhere{harness.StartRemote(t, more, config...)}
}

// client calls the daemon by the network, with a home of its own.
func (e elsewhere) client(ctx context.Context, key string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), args...)
	cmd.Env = []string{"HOME=" + e.Dir, "PATH=" + os.Getenv("PATH"), "CAISSON_HOST=tcp://" + e.Address, "CAISSON_TLS_CA=" + e.CA.File}
	if key != "" {
		cmd.Env = append(cmd.Env, "CAISSON_KEY="+key)
	}
	return cmd
}

func (e elsewhere) try(key string, args ...string) harness.Result { return e.tryWith("", key, args...) }

func (e elsewhere) tryWith(stdin, key string, args ...string) harness.Result {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return finished(e.client(ctx, key, args...), stdin, args)
}

func finished(cmd *exec.Cmd, stdin string, args []string) harness.Result {
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	_ = cmd.Run() // the exit code tells
	return harness.Result{Args: args, Stdout: out.String(), Stderr: errOut.String(), Code: cmd.ProcessState.ExitCode()}
}

func (e elsewhere) run(t testing.TB, key string, args ...string) harness.Result {
	t.Helper()
	r := e.try(key, args...)
	if r.Code != 0 {
		t.Fatalf("%q: code %d\n%s%s\n%s", args, r.Code, r.Stdout, r.Stderr, e.Log())
	}
	return r
}

// What a caller from the network may do is done as over the socket.
func TestRemoteCalls(t *testing.T) {
	t.Parallel()
	e := startElsewhere(t, "")
	key := e.MakeKey(t, "ann", "--as", "54321")
	id := strings.TrimSpace(e.run(t, key, "create", "--name", "box").Stdout)
	if l := inspect(t, e.Daemon, "box"); l.OwnerUID != ann {
		t.Errorf("it belongs to %d", l.OwnerUID)
	}
	r := e.tryWith("to and fro", key, "exec", "-i", "box", "--", "sh", "-c", "cat; echo late >&2; exit 7")
	if r.Code != 7 || r.Stdout != "to and fro" || r.Stderr != "late\n" {
		t.Errorf("exec: %+v", r)
	}
	const size = 3 << 20
	file, back := filepath.Join(e.Dir, "there"), filepath.Join(e.Dir, "back")
	if err := os.WriteFile(file, bytes.Repeat([]byte("caisson "), size/8), 0o600); err != nil {
		t.Fatal(err)
	}
	e.run(t, key, "cp", file, "box:/tmp/there")
	e.run(t, key, "cp", "box:/tmp/there", back)
	if a, err := os.ReadFile(back); err != nil || len(a) != size {
		t.Errorf("%d bytes came back: %v", len(a), err)
	}
	job := strings.TrimSpace(e.run(t, key, "exec", "-d", "box", "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done").Stdout)
	if r := e.run(t, key, "logs", "-f", "--exec", job, "box"); r.Stdout != "1\n2\n3\n" {
		t.Errorf("logs -f: %q", r.Stdout)
	}
	t.Run("records name the key", func(t *testing.T) {
		text := e.Run(t, "events", "--json").Stdout
		if !strings.Contains(text, "uid 54321 by key ann") {
			t.Errorf("events:\n%s", text)
		}
		if log := e.Run(t, "audit", "query").Stdout + e.Run(t, "audit", "query", "--json").Stdout; !strings.Contains(log, "by key ann") {
			t.Errorf("audit:\n%s", log)
		}
		if log := e.Log() + text; strings.Contains(log, key) || strings.Contains(log, key[4:20]) {
			t.Error("the key itself is told")
		}
	})
	t.Run("others' sandboxes are not there", func(t *testing.T) {
		box(t, e.Daemon, "roots")
		other := e.MakeKey(t, "bob", "--as", "54322")
		for _, foreign := range []string{"box", id, "roots"} {
			e.try(other, "exec", "--json", foreign, "--", "true").Refused(t, "SBX-107")
			e.try(other, "rm", "--force", "-o", "json", foreign).Refused(t, "SBX-107")
		}
		if out := strings.TrimSpace(e.run(t, other, "ls", "-o", "json").Stdout); out != "[]" {
			t.Errorf("bob sees %s", out)
		}
		e.try(other, "cleanup", "-o", "json").Refused(t, "SBX-805")
	})
	t.Run("a user without an entry", func(t *testing.T) {
		stranger := e.MakeKey(t, "stranger", "--as", "54323")
		e.try(stranger, "ls", "-o", "json").Refused(t, "SBX-805")
	})
	e.run(t, key, "rm", "--force", "box")
}

// Nothing of the host is reached with a user's own rights, root's neither. The same calls succeed
// over the socket.
func TestRemoteIsNotTheHost(t *testing.T) {
	t.Parallel()
	e := startElsewhere(t, "", "profiles: {host: {isolation: none, timeout: 1m}}\nunisolated: {profiles: [host], user: '43210'}\n")
	admin := e.MakeKey(t, "boss", "--admin")
	dir := filepath.Join("/var/tmp", filepath.Base(e.Root)+"-w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	secret := filepath.Join(e.Dir, "secret")
	if err := os.WriteFile(secret, []byte("a-long-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := [][]string{
		{"create", "--json", "--name", "w1", "--workspace", dir},
		{"create", "--json", "--name", "w2", "--workspace", dir + ":cow"},
		{"create", "--json", "--name", "w3", "--mount", "type=bind,src=" + dir + ",dst=/data"},
		{"create", "--json", "--name", "bare", "--profile", "host"},
		{"image", "from-host", "tools", "--path", "/bin/true", "-o", "json"},
		{"secret", "set", "--json", "--from", "file:" + secret, "one"},
		{"secret", "set", "--json", "--from", "command:/bin/echo a-long-secret", "two"},
	}
	for _, call := range calls {
		e.try(admin, call...).Refused(t, "SBX-811")
	}
	for _, call := range calls {
		e.Run(t, call...)
	}
	e.Run(t, "exec", "bare", "--", "true")
	for _, call := range [][]string{{"exec", "--json", "bare", "--", "true"}, {"inspect", "-o", "json", "bare"}, {"rm", "--force", "-o", "json", "bare"}} {
		e.try(admin, call...).Refused(t, "SBX-107")
	}
	e.Run(t, "exec", "w2", "--", "sh", "-c", "echo new >/workspace/file")
	e.try(admin, "apply", "-o", "json", "w2").Refused(t, "SBX-811")
	e.try(admin, "update", "-o", "json", "-m", "100M", "w1") // what is no directory may be changed
	e.Run(t, "create", "--name", "plain")
	e.try(admin, "attach-workspace", "-o", "json", "plain", dir).Refused(t, "SBX-811")
	e.try(admin, "diff", "--patch", "-o", "json", "w2").Refused(t, "SBX-811")
	e.try(admin, "restart", "-o", "json", "w1").Refused(t, "SBX-811")
	e.Run(t, "apply", "w2")
	for _, call := range [][]string{{"key", "ls", "--json"}, {"key", "create", "--json", "x", "--as", "1"}, {"audit", "query", "--json"}, {"page", "--json"}} {
		e.try(admin, call...).Refused(t, "SBX-811")
	}
	e.run(t, admin, "cleanup")
	e.Run(t, "rm", "--force", "w1", "w2", "w3", "bare", "plain")
}

// Who shows nothing that counts gets nowhere.
func TestRemoteRefusals(t *testing.T) {
	t.Parallel()
	e := startElsewhere(t, "")
	key := e.MakeKey(t, "ann", "--as", "54321")
	e.run(t, key, "ls")
	for name, wrong := range map[string]string{"none": "", "wrong": key[:len(key)-1] + "_", "short": "x"} {
		f := e.try(wrong, "ls", "-o", "json").Refused(t, "SBX-810")
		if f.Error.Remedy == "" {
			t.Errorf("%s: no remedy", name)
		}
	}
	brief := e.MakeKey(t, "brief", "--as", "54321", "--expires", "3s")
	e.run(t, brief, "ls")
	time.Sleep(3500 * time.Millisecond) // the clock is what expires it
	e.try(brief, "ls", "-o", "json").Refused(t, "SBX-810")
	t.Run("plain HTTP", func(t *testing.T) {
		res, err := http.Get("http://" + e.Address + "/v1/sandboxes")
		if err == nil {
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusBadRequest || strings.Contains(string(text), "sandboxes") {
				t.Errorf("answered %s: %s", res.Status, text)
			}
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		if c, err := tls.Dial("tcp", e.Address, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); err == nil {
			c.Close()
			t.Error("TLS 1.2 is spoken")
		}
	})
	t.Run("a daemon that is not trusted", func(t *testing.T) {
		cmd := e.client(t.Context(), key, "ls", "-o", "json")
		cmd.Env = append(cmd.Env, "CAISSON_TLS_CA="+harness.NewAuthority(t, t.TempDir(), "other").File)
		finished(cmd, "", cmd.Args[1:]).Refused(t, "SBX-814")
	})
	t.Run("a client that never finishes", func(t *testing.T) {
		c, err := net.Dial("tcp", e.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{22, 3, 1}); err != nil { // the beginning of a hello
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if n, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("it is open after %s: %d bytes, %v", time.Since(begun), n, err)
		}
	})
	t.Run("counted and told", func(t *testing.T) {
		events := e.Run(t, "events", "--json").Stdout
		if !strings.Contains(events, "SBX-810") || !strings.Contains(events, `127.0.0.1`) {
			t.Errorf("events:\n%s", events)
		}
	})
	t.Run("one address does not take all places", func(t *testing.T) {
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		closed := 0
		for range 60 {
			c, err := net.Dial("tcp", e.Address)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); err != nil && !os.IsTimeout(err) {
				closed++
			}
		}
		if closed < 20 {
			t.Errorf("only %d of 60 connections without a key were closed at once", closed)
		}
	})
	e.Run(t, "ls") // over the socket all goes on
}

// A key that is removed ends its streams; certificates are changed under streams of others.
func TestRemoteRotation(t *testing.T) {
	t.Parallel()
	e := startElsewhere(t, "")
	old := e.MakeKey(t, "old", "--as", "54321")
	e.run(t, old, "create", "--name", "box")
	follow := func(key string) (*exec.Cmd, *bytes.Buffer, chan error) {
		cmd := e.client(t.Context(), key, "exec", "box", "--", "sh", "-c", "while true; do echo tick; sleep 0.1; done")
		out := &bytes.Buffer{}
		cmd.Stdout = out
		ended := make(chan error, 1)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- cmd.Wait() }()
		return cmd, out, ended
	}
	fresh := e.MakeKey(t, "fresh", "--as", "54321")
	lasting, _, lastingEnded := follow(fresh)
	_, _, oldEnded := follow(old)
	time.Sleep(500 * time.Millisecond)

	before := serialOf(t, e)
	e.CA.Sign(t, e.Dir, "localhost", time.Now().Add(2*time.Hour)) // into the same files
	e.Run(t, "config", "reload")
	if after := serialOf(t, e); after == before {
		t.Error("the certificate is the one from before")
	}
	if err := os.Chmod(e.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	e.Try("config", "reload", "-o", "json").Refused(t, "SBX-105")
	e.run(t, fresh, "ls") // with the certificate that is in force
	if err := os.Chmod(e.Key, 0o600); err != nil {
		t.Fatal(err)
	}

	e.Run(t, "key", "rm", "old")
	select {
	case <-oldEnded:
	case <-time.After(20 * time.Second):
		t.Error("a stream of the key goes on")
	}
	e.try(old, "ls", "-o", "json").Refused(t, "SBX-810")
	select {
	case err := <-lastingEnded:
		t.Errorf("the stream of another key ended: %v", err)
	default:
	}
	_ = lasting.Process.Kill()
	<-lastingEnded
	var list []struct{ Name string }
	e.Run(t, "key", "ls", "--json").JSON(t, &list)
	if len(list) != 1 || list[0].Name != "fresh" {
		t.Errorf("keys: %+v", list)
	}
	e.run(t, fresh, "rm", "--force", "box")
}

// serialOf is the serial number of the certificate that the daemon shows.
func serialOf(t *testing.T, e elsewhere) string {
	t.Helper()
	c, err := tls.Dial("tcp", e.Address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// With a CA of clients no other client reaches the API.
func TestRemoteCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clients := harness.NewAuthority(t, dir, "clients")
	e := startElsewhere(t, ", client_ca: "+clients.File)
	e.MakeKey(t, "build.example.com", "--as", "54321", "--certificate")
	key := e.MakeKey(t, "ann", "--as", "54321")
	with := func(by harness.Authority, name string, until time.Time, key string) harness.Result {
		cert, certKey := by.Sign(t, t.TempDir(), name, until)
		cmd := e.client(t.Context(), key, "--tls-cert", cert, "--tls-key", certKey, "ls", "-o", "json")
		return finished(cmd, "", cmd.Args[1:])
	}
	hour := time.Now().Add(time.Hour)
	if r := with(clients, "build.example.com", hour, ""); r.Code != 0 {
		t.Fatalf("%+v\n%s", r, e.Log())
	}
	if r := with(clients, "other.example.com", hour, key); r.Code != 0 { // by its key
		t.Errorf("%+v", r)
	}
	with(clients, "other.example.com", hour, "").Refused(t, "SBX-810")
	with(clients, "build.example.com", time.Now().Add(-time.Minute), "").Refused(t, "SBX-814")
	with(harness.NewAuthority(t, t.TempDir(), "foreign"), "build.example.com", hour, key).Refused(t, "SBX-814")
	e.try(key, "ls", "-o", "json").Refused(t, "SBX-814")
	t.Run("a browser is not known by its certificate", func(t *testing.T) {
		cert, certKey := clients.Sign(t, t.TempDir(), "build.example.com", hour)
		pair, err := tls.LoadX509KeyPair(cert, certKey)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(e.CA.Cert)
		web := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}}
		defer web.CloseIdleConnections()
		for origin, want := range map[string]int{"": http.StatusOK, "https://other.example.com": http.StatusUnauthorized} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+e.Address+"/v1/sandboxes", nil)
			if err != nil {
				t.Fatal(err)
			}
			if origin != "" {
				req.Header.Set("Origin", origin)
			}
			res, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != want || res.ProtoMajor != 2 || want != http.StatusOK && !strings.Contains(string(text), `"error":{"code":"SBX-810"`) {
				t.Errorf("origin %q: %s %s: %s", origin, res.Proto, res.Status, text)
			}
		}
	})
}

// A listener that cannot be as it must be keeps the daemon from its start.
func TestRemoteStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := harness.NewAuthority(t, dir, "ca")
	cert, key := ca.Sign(t, dir, "localhost", time.Now().Add(time.Hour))
	expired, expiredKey := ca.Sign(t, t.TempDir(), "localhost", time.Now().Add(-time.Minute))
	open := filepath.Join(dir, "open.key")
	text, err := os.ReadFile(key)
	if err == nil {
		err = os.WriteFile(open, text, 0o600)
	}
	if err == nil {
		err = os.Chmod(open, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopAll := harness.New(t)
	stopAll.Config = fmt.Sprintf("listen: {tcp: '%s', cert: '%s', key: '%s'}\n", harness.FreeAddress(t), expired, expiredKey)
	stopAll.Config += "sandboxes: {keep_on_exit: false}\n"
	stopAll.Spawn(t, "--stop-all")
	stopAll.AwaitEnd(t)
	if stopAll.ExitCode() != 0 {
		t.Errorf("--stop-all with an expired certificate: code %d\n%s", stopAll.ExitCode(), stopAll.Log())
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := harness.FreeAddress(t)
	for name, c := range map[string][4]string{
		"no certificate": {free, "", "", "by TLS alone"},
		"expired":        {free, expired, expiredKey, "has expired"},
		"an open key":    {free, cert, open, "chmod 600"},
		"another's key":  {free, cert, expiredKey, "listen.cert"},
		"taken":          {taken.Addr().String(), cert, key, "ss -ltnp"},
	} {
		d := harness.New(t)
		d.Config = fmt.Sprintf("listen: {tcp: '%s', cert: '%s', key: '%s'}\n", c[0], c[1], c[2])
		d.Spawn(t)
		select {
		case <-d.Ended():
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it runs:\n%s", name, d.Log())
			d.Stop(t)
		}
		if log := d.Log(); d.ExitCode() != 125 || !strings.Contains(log, "SBX-105") || !strings.Contains(log, c[3]) {
			t.Errorf("%s: code %d\n%s", name, d.ExitCode(), log)
		}
	}
}

// A context is a daemon with a name; ssh:// runs the user's own ssh.
func TestRemoteContexts(t *testing.T) {
	t.Parallel()
	e := startElsewhere(t, "")
	key := e.MakeKey(t, "ann", "--as", "54321")
	home := t.TempDir()
	keyFile := filepath.Join(home, "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(home, "ssh") // as the real one: all after -- and the host is the command
	script := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do echo \"$1\" >>" + home + "/args; shift; done\nshift 2\nexport CAISSON_SOCKET=" + e.Socket + "\nexec " + filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson") + " dial-stdio\n"
	if err := os.WriteFile(shim, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) harness.Result {
		cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), args...)
		cmd.Env = []string{"HOME=" + home, "PATH=" + home + ":" + os.Getenv("PATH")}
		return finished(cmd, "", args)
	}
	must := func(args ...string) string {
		r := call(args...)
		if r.Code != 0 {
			t.Fatalf("%q: %+v", args, r)
		}
		return r.Stdout
	}
	call("context", "use", "-o", "json", "nowhere").Refused(t, "SBX-813")
	call("--context", "nowhere", "ls", "-o", "json").Refused(t, "SBX-813")
	must("context", "create", "far", "--host", "tcp://"+e.Address, "--tls-ca", e.CA.File, "--key-file", keyFile)
	must("context", "create", "by-ssh", "--host", "ssh://ann@lab.example.com:2222")
	call("context", "create", "-o", "json", "far", "--host", "tcp://x:1").Refused(t, "SBX-106")
	must("context", "use", "far")
	must("create", "--name", "box")
	if st, err := os.Stat(filepath.Join(home, ".config/caisson/contexts.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file of contexts: %v, %v", st, err)
	}
	if out := must("--context", "by-ssh", "ls", "-o", "name"); !strings.Contains(out, "box") {
		t.Errorf("by ssh: %q", out)
	}
	if out := must("--context", "by-ssh", "exec", "box", "--", "echo", "hello"); out != "hello\n" {
		t.Errorf("by ssh: %q", out)
	}
	if args, err := os.ReadFile(filepath.Join(home, "args")); err != nil || !strings.Contains(string(args), "-l\nann\n-p\n2222\n") {
		t.Errorf("ssh got %q: %v", args, err)
	}
	if err := os.Chmod(keyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	call("ls", "-o", "json").Refused(t, "SBX-804")
	must("context", "use", "default")
	must("context", "rm", "far")
	var list []map[string]any
	if err := json.Unmarshal([]byte(must("context", "ls", "--json")), &list); err != nil || len(list) != 2 {
		t.Errorf("contexts %v: %v", list, err)
	}
	e.Run(t, "rm", "--force", "box")
}
