package programs

import (
	"archive/zip"
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installsNode: npm ci by a lock file, and npm install -g of a program whose script runs.
func (s *setup) installsNode(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "left/package.json"), `{"name": "left", "version": "1.2.0", "main": "index.js"}`)
	write(t, filepath.Join(dir, "left/index.js"), `module.exports = s => "left " + s`)
	write(t, filepath.Join(dir, "tool/package.json"), `{"name": "tool", "version": "2.0.0", "bin": {"tool": "tool.js"}, "dependencies": {"left": "^1.0.0"}, "scripts": {"postinstall": "node -e 'fs.writeFileSync(\"ran\", os.userInfo().username)'"}}`)
	write(t, filepath.Join(dir, "tool/tool.js"), "#!/usr/bin/env node\nconst fs = require('fs')\nconsole.log(require('left')(fs.readFileSync(__dirname + '/ran', 'utf8')))\n")
	for name, version := range map[string]string{"left": "1.2.0", "tool": "2.0.0"} {
		command(t, filepath.Join(dir, name), "npm", "pack", "--silent", "--cache", filepath.Join(dir, "cache"), "--pack-destination", dir)
		s.publish(t, filepath.Join(dir, name), name, version)
	}
	s.serve("/npm/-/", dir)
	registry := []string{"-e", "npm_config_registry=http://" + index + "/npm/", "-e", "npm_config_update_notifier=false"}
	sh := s.sandbox(t, "tools", registry...)
	sh(`npm install --loglevel=error -g tool; command -v tool; tool`, "/tool\nleft root\n")
	sh(`mkdir app; cd app; printf %s '{"name": "app", "dependencies": {"left": "1.2.0"}, "scripts": {"test": "node -p \"require(\\\"left\\\")(1)\""}}' > package.json
npm install --loglevel=error --package-lock-only; test ! -e node_modules; npm ci --loglevel=error; npm test --silent`, "left 1\n")
	const needs = `mkdir app; cd app; printf %s '{"name": "app", "dependencies": {"left": "1.2.0"}}' > package.json; `
	s.cached(t, "npm", registry, needs+"npm install --loglevel=error", needs+`npm install --offline --loglevel=error; node -p 'require("left")(2)'`, "left 2\n")
}

// publish serves the document of a package.
func (s *setup) publish(t *testing.T, dir, name, version string) {
	t.Helper()
	var manifest map[string]any
	file := strings.TrimPrefix(strings.ReplaceAll(name, "/", "-"), "@") + "-" + version + ".tgz"
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(filepath.Join(dir, "..", file))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(archive)
	manifest["dist"] = map[string]string{"tarball": "http://" + index + "/npm/-/" + file, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	if manifest["scripts"] != nil {
		manifest["hasInstallScript"] = true
	}
	document, err := json.Marshal(map[string]any{"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: manifest}})
	if err != nil {
		t.Fatal(err)
	}
	s.mux.HandleFunc("/npm/"+name, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}

// installsPython: a virtual environment, and pip in it and beside it.
func (s *setup) installsPython(t *testing.T) {
	dir := t.TempDir()
	wheel(t, dir, "greeter", "greeter/__init__.py", "from words import word\ndef main(): print('hello', word)\n", "Requires-Dist: words\n", "[console_scripts]\ngreet = greeter:main\n")
	wheel(t, dir, "words", "words.py", "word = 'world'\n", "", "")
	s.serve("/simple/", dir)
	sh := s.sandbox(t, "tools", "-e", "PIP_INDEX_URL=http://"+index+"/simple", "-e", "PIP_TRUSTED_HOST="+index, "-e", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	sh("python3 -m venv env; . env/bin/activate; pip -q install greeter; greet; python -c 'import greeter; print(greeter.__file__)'", "hello world\n"+"/workspace/env/lib/python"+pythonVersion(t, s)+"/site-packages/greeter/__init__.py\n")
	sh("env/bin/pip -q --python /usr/bin/python3 install --break-system-packages greeter 2>/dev/null; greet; command -v greet", "hello world\n/usr/local/bin/greet\n")
}

func pythonVersion(t *testing.T, s *setup) string {
	t.Helper()
	return strings.TrimSpace(s.Run(t, "run", "--image", "tools", "--", "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Stdout)
}

// wheel makes the package name of one module, where an index of files has it.
func wheel(t *testing.T, dir, name, file, text, requires, entries string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	info := name + "-1.0.dist-info/"
	record := ""
	for _, f := range [][2]string{
		{file, text}, {info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n" + requires},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "entry_points.txt", entries},
	} {
		record += f[0] + ",,\n"
		add(t, z, f[0], f[1])
	}
	add(t, z, info+"RECORD", record+info+"RECORD,,\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, name, name+"-1.0-py3-none-any.whl"), out.String())
}

func add(t *testing.T, z *zip.Writer, name, text string) {
	t.Helper()
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// module serves a module of Go by a proxy of modules.
func (s *setup) module(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const mod = "module " + index + "/lib\n\ngo 1.21\n"
	at := filepath.Join(dir, index, "lib/@v")
	write(t, filepath.Join(at, "list"), "v1.0.0\n")
	write(t, filepath.Join(at, "v1.0.0.info"), `{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}`)
	write(t, filepath.Join(at, "v1.0.0.mod"), mod)
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add(t, z, index+"/lib@v1.0.0/go.mod", mod)
	add(t, z, index+"/lib@v1.0.0/lib.go", "package lib\n\nconst Word = \"built\"\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(at, "v1.0.0.zip"), out.String())
	s.serve("/go/", dir)
}

// buildsGo: a module of a proxy is fetched once into the cache of modules, and built.
func (s *setup) buildsGo(t *testing.T) {
	s.module(t)
	flags := []string{"--cpus", "2", "--mount", "type=bind,src=" + toolchain(t) + ",dst=/toolchain,ro", "-e", "GOPROXY=http://" + index + "/go", "-e", "GONOSUMDB=*", "-e", "GOFLAGS=-mod=mod", "-e", "CGO_ENABLED=0"}
	sh := s.sandbox(t, "tools", flags...)
	const source = "package main\n\nimport \"" + index + "/lib\"\n\nfunc main() { print(lib.Word, \"\\n\") }\n"
	sh(fmt.Sprintf(`export PATH=/toolchain/bin:$PATH; go mod init app 2>/dev/null; cat > main.go <<'X'
%sX
go build -o /usr/local/bin/app . 2>/dev/null; app 2>&1; cat $(go env GOMODCACHE)/cache/download/%s/lib/@v/list; GOPROXY=off go build . && echo cached`, source, index), "built\nv1.0.0\ncached\n")
	build := fmt.Sprintf("export PATH=/toolchain/bin:$PATH; go mod init app; go mod edit -require %s/lib@v1.0.0; cat > main.go <<'X'\n%sX\n", index, source)
	s.cached(t, "go", flags, build+"go build .", build+"GOPROXY=off go build .; ./app 2>&1", "built\n")
}

// toolchain copies what builds programs of Go, as no part of the host's /usr can be mounted.
func toolchain(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command(t, strings.TrimSpace(string(root)), "sh", "-ec", `mkdir -p "$1/src" "$1/pkg"; cp -r bin VERSION go.env "$1"; cp -r pkg/tool pkg/include "$1/pkg"
for d in src/*; do [ $d = src/cmd ] || cp -r $d "$1/src"; done`, "sh", dir)
	return dir
}
