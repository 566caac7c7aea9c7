# caisson: build, check, test. `make help` lists the targets.
#
# Everything lands in bin/ (what is installed) and build/ (what is not). A rule
# rebuilds only what is stale: the engine (containerd, its shim, runc) depends on
# go.sum, our own programs on the sources.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
BIN     := bin
BUILD   := build
ASSETS  := rootfs/base/assets

# A version is semver.org's: that of the tag, or of the release to come with the commit.
NEXT    := 0.1.0
VERSION := $(shell git describe --tags --dirty --match 'v[0-9]*' 2>/dev/null | sed s/^v// | grep . \
             || echo $(NEXT)-dev$$(git describe --always --dirty=.dirty --exclude '*' 2>/dev/null | sed s/^/+/))
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

STRIPPED := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
SOURCES := $(shell find . \( -path ./.git -o -path ./$(BUILD) -o -path ./$(BIN) -o -path ./tools -o -path ./tests -o -path ./node \) -prune \
             -o -type f \( -name '*.go' ! -name '*_test.go' -o -path '*/assets/*' \) -print 2>/dev/null)

ENGINE  := $(addprefix $(BIN)/,containerd containerd-shim-runc-v2 runc)
OURS    := $(addprefix $(BIN)/,caisson caisson-whole caisson-init caisson-gateway caisson-images caisson-shim)
DAEMON  := $(BIN)/caissond
# LIBEXEC are the programs that no user calls: they are installed apart.
LIBEXEC := $(filter-out caisson,$(notdir $(OURS) $(ENGINE)))
OLD     := $(addprefix $(BUILD)/containerd17/,containerd containerd-shim-runc-v2 ctr)
RUNSC   := $(BUILD)/gvisor/runsc
TESTREG := $(BUILD)/registry/registry
BROWSER := $(BUILD)/browser/browser
TESTSUM := $(BUILD)/gotestsum/gotestsum
BASE    := $(ASSETS)/busybox $(ASSETS)/applets.txt
PLUGINS := $(addprefix $(BUILD)/protoc/,protoc-gen-go protoc-gen-connect-go)

# The suites that drive a whole daemon; every other package is a unit.
ROOT_SUITES := ./tests/fault/... ./tests/integration/... ./tests/network/... ./tests/escape/... ./tests/programs/... ./tests/sdk/... ./tests/agents/... ./tests/page/... ./tests/cost/...
UNIT        = $$($(GO) list ./... ./api/... | grep -vE '/tests/(integration|escape|network|fault|programs|sdk|agents|page|cost|package|vm|bench)(/|$$)')

# The real programs of tests/programs, what pushes and keeps images, the browser of tests/page, and what tests/sdk builds with: nodejs has npm in some
# distributions, and Debian has a package of its own.
PROGRAMS := $(shell command -v npm >/dev/null || echo npm) nodejs python3 python3-venv git git-lfs passwd util-linux openjdk-17-jre-headless hostname fakeroot strace valgrind skopeo podman chromium openssh-client openssh-server

root = [ "$$(id -u)" = 0 ] || { echo '$@ needs root: it makes namespaces, mounts and cgroups' >&2; exit 1; }

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# --- build ---------------------------------------------------------------------

.PHONY: setup
setup: ## install the Debian packages that building and testing need (or say which are missing)
	@scripts/setup.sh

.PHONY: build
build: $(OURS) $(DAEMON) $(ENGINE) ## build our programs and the engine into bin/

.PHONY: engine
engine: $(ENGINE) ## build only containerd, its runc shim and runc

.PHONY: assets
assets: $(BASE) ## prepare the content of the embedded base image

# version.stamp changes only when what it holds changes, so that a build in the
# same tree does not link everything again.
$(BUILD)/version.stamp: FORCE
	@mkdir -p $(@D); echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' > $@
.PHONY: FORCE
FORCE:

# Go's linker writes a program through a mapping, a page at a time, and so the page cache
# keeps it. Written again in one go, as by installing it, a program starts half a
# millisecond sooner.
rewrite = cp $@ $@.whole && mv -f $@.whole $@

$(OURS): $(BIN)/%: $(SOURCES) $(BASE) go.mod go.sum go.work $(BUILD)/version.stamp
	@mkdir -p $(@D)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(STRIPPED)' -o $@ ./cmd/$(if $(filter caisson-whole,$*),caisson/)$*
	@$(rewrite)

# The daemon compiles seccomp filters with libseccomp, to compare those in force with. It
# is linked statically, as runc is and for the same reasons.
$(DAEMON): $(SOURCES) $(BASE) go.mod go.sum go.work $(BUILD)/version.stamp
	@mkdir -p $(@D)
	CGO_ENABLED=1 $(GO) build -trimpath -tags 'netgo osusergo' \
	  -ldflags '$(STRIPPED) -linkmode external -extldflags "-static"' -o $@ ./cmd/caissond
	@$(rewrite)

# The engine is built from the tool directives in go.mod. What we disable in its
# configuration anyway is left out where a build tag allows it: CRI, tracing and
# the snapshotters that nobody asks for. The shim's no_grpc makes each shim
# process smaller. Versions come from go.mod, not from a git tree.
CONTAINERD      := github.com/containerd/containerd/v2
CONTAINERD_TAGS := no_cri no_tracing no_btrfs no_devmapper no_zfs netgo osusergo static_build urfave_cli_no_docs
RUNC            := github.com/opencontainers/runc
module_version   = $$($(GO) list -m -f '{{.Version}}' $(1))

$(BIN)/containerd: go.sum
	@mkdir -p $(@D)
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(CONTAINERD_TAGS)' \
	  -ldflags "-s -w -X $(CONTAINERD)/version.Version=$(call module_version,$(CONTAINERD))" -o $@ $(CONTAINERD)/cmd/containerd
	@$(rewrite)

$(BIN)/containerd-shim-runc-v2: go.sum
	@mkdir -p $(@D)
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(CONTAINERD_TAGS) no_grpc' \
	  -ldflags "-s -w -X $(CONTAINERD)/version.Version=$(call module_version,$(CONTAINERD))" -o $@ $(CONTAINERD)/cmd/containerd-shim-runc-v2
	@$(rewrite)

# runc needs cgo (nsexec, libseccomp) and is linked statically, so that it runs on
# any host and cannot be made to load a library from a sandbox's root. It starts at a
# random address, which packed relocations make cheaper where the C library knows them
# (ld(1); glibc since 2.36). Nothing is ever restored from a checkpoint, and without
# CRIU it cannot be.
PACKED := $(shell printf 'glibc 2.36\n%s\n' "$$(getconf GNU_LIBC_VERSION 2>/dev/null)" | sort -CV && echo ' -Wl,-z,pack-relative-relocs')
$(BIN)/runc: go.sum
	@mkdir -p $(@D)
	CGO_ENABLED=1 $(GO) build -trimpath -buildmode=pie -tags 'seccomp runc_nocriu netgo osusergo urfave_cli_no_docs' \
	  -ldflags '-s -w -linkmode external -extldflags "-static-pie$(PACKED)"' -o $@ $(RUNC)

# A second, older containerd for the compatibility tests.
.PHONY: containerd17
containerd17: $(OLD) ## build containerd 1.7 for the compatibility tests into build/containerd17/
$(OLD): $(BUILD)/containerd17/%: tools/containerd17/go.sum
	@mkdir -p $(@D)
	cd tools/containerd17 && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -tags '$(CONTAINERD_TAGS) no_aufs' \
	  -ldflags "-s -w -X github.com/containerd/containerd/version.Version=$(call module_version,github.com/containerd/containerd)" \
	  -o $(CURDIR)/$@ github.com/containerd/containerd/cmd/$*

# Another OCI runtime, for the test that it is bound by the same network namespace.
.PHONY: gvisor
gvisor: $(RUNSC) ## build gVisor's runsc for a test of the network into build/gvisor/
$(RUNSC): tools/gvisor/go.sum
	@mkdir -p $(@D)
	cd tools/gvisor && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath \
	  -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$(call module_version,gvisor.dev/gvisor)" \
	  -o $(CURDIR)/$@ gvisor.dev/gvisor/runsc

# A registry, for the tests of pulling images.
.PHONY: registry
registry: $(TESTREG) ## build the registry for the tests of pulling images into build/registry/
$(TESTREG): tools/registry/go.sum tools/registry/main.go
	@mkdir -p $(@D)
	cd tools/registry && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ .

# A driver of a headless browser, for the tests of the page.
.PHONY: browser
browser: $(BROWSER) ## build the driver of the browser for the tests of the page into build/browser/
$(BROWSER): tools/browser/go.sum tools/browser/main.go
	@mkdir -p $(@D)
	cd tools/browser && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ .

# A Kubernetes cluster in one binary, for the tests of caisson-node: 10 minutes of two quiet
# cores. Both share Go's build cache, so neither has flags that the other lacks.
KUBE      := $(BUILD)/kubernetes/kubernetes
NODE      := $(BUILD)/kubernetes/caisson-node
KUBE_VERSION = $$(cd tools/kubernetes && GOWORK=off $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
.PHONY: kubernetes node
kubernetes: $(KUBE) ## build a Kubernetes cluster for tests into build/kubernetes/
$(KUBE): tools/kubernetes/go.sum tools/kubernetes/main.go
	@mkdir -p $(@D)
	v=$(KUBE_VERSION); minor=$${v#v1.}; cd tools/kubernetes && GOWORK=off $(GO) build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$v \
	  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$${minor%%.*}" -o $(CURDIR)/$@ .
node: ## build caisson-node, which joins a Kubernetes cluster, into build/kubernetes/
	@mkdir -p $(BUILD)/kubernetes
	cd node && GOWORK=off $(GO) build -ldflags '-s -w' -o $(CURDIR)/$(NODE) ./cmd/caisson-node

# What writes packages, and what lists the modules of programs and their licences.
NFPM := $(BUILD)/nfpm/nfpm
SBOM := $(BUILD)/sbom/sbom
$(NFPM): tools/nfpm/go.sum
	@mkdir -p $(@D)
	cd tools/nfpm && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ github.com/goreleaser/nfpm/v2/cmd/nfpm
$(SBOM): tools/sbom/go.sum $(wildcard tools/sbom/*.go)
	@mkdir -p $(@D)
	cd tools/sbom && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ .

# What runs a failed test once more, for scripts/gotest.sh.
$(TESTSUM): tools/gotestsum/go.sum
	@mkdir -p $(@D)
	cd tools/gotestsum && export GOWORK=off CGO_ENABLED=0 && $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ gotest.tools/gotestsum

# The base image is a static busybox; the daemon embeds these two files.
$(ASSETS)/busybox: scripts/busybox.sh
	scripts/busybox.sh $(BUILD)/busybox $@
$(ASSETS)/applets.txt: $(ASSETS)/busybox
	$< --list > $@

# --- generated files -----------------------------------------------------------

$(PLUGINS): $(BUILD)/protoc/%: go.sum
	@mkdir -p $(@D)
	$(GO) build -trimpath -o $@ "$$($(GO) list -f '{{.ImportPath}}' tool | grep '/$*$$')"

.PHONY: generate
generate: $(PLUGINS) $(BASE) ## write the generated files again (API and options of the SDKs from the proto, docs/reference/errors.md)
	@scripts/generate.sh .

# --- check and test ------------------------------------------------------------

.PHONY: check
check: ## formatting, vet, staticcheck, layering, go.mod, generated files and the Python SDK
	$(MAKE) setup
	$(MAKE) $(PLUGINS) $(BASE)
	@scripts/check.sh

# Quick: vet is check's; packages and tests that run in parallel wait more than
# they compute; nobody debugs the binaries; and -short leaves out what takes seconds
# of a CPU, which test-cover runs.
QUICK := -short -vet=off -p 4 -parallel 8 -ldflags=-s

.PHONY: test-unit
test-unit: $(BASE) ## unit tests: no root, under 30 s
	$(GO) test $(QUICK) $(UNIT)

# As root and with the engine at hand, tests that test-unit skips run too, and a
# skip is a failure.
STRICT := CAISSON_BIN_DIR=$(CURDIR)/$(BIN) CAISSON_CONTAINERD17_DIR=$(CURDIR)/$(BUILD)/containerd17 CAISSON_RUNSC=$(CURDIR)/$(RUNSC) CAISSON_REGISTRY=$(CURDIR)/$(TESTREG) CAISSON_BROWSER=$(CURDIR)/$(BROWSER) CAISSON_TEST_STRICT=1

.PHONY: test-cover
test-cover: build containerd17 ## tests of all packages, with those that need root, and their coverage (root)
	@$(root)
	$(STRICT) $(GO) test -count=1 -vet=off -timeout 10m -coverprofile=$(BUILD)/cover.out $(UNIT)
	@echo 'coverage of all packages together:'; $(GO) tool cover -func=$(BUILD)/cover.out | tail -1

.PHONY: test-touch
test-touch: build browser ## after a change: tests of the changed packages and smoke tests of all suites, in two minutes (SINCE=commit; root)
	@$(root)
	$(STRICT) scripts/touch.sh $(SINCE)

.PHONY: test-strict
test-strict: build containerd17 registry $(TESTSUM) ## tests of all packages, with those that need root (root)
	@$(root)
	$(STRICT) scripts/gotest.sh $(UNIT) -- -count=1 -vet=off -timeout 10m

# Two suites run at a time: each waits more than it computes. The longest goes first.
.PHONY: test-root
test-root: build containerd17 gvisor registry browser $(TESTSUM) ## all suites that drive a whole daemon, against the real containerd and runc (root)
	@$(root)
	scripts/setup.sh $(PROGRAMS)
	$(STRICT) scripts/gotest.sh $(ROOT_SUITES) -- -count=1 -vet=off -timeout 60m -p 2 -skip "^(TestChaos$$(tests/turn.sh))$$"

# Sweeps, the virtual machine and the two largest suites take a fifth of their points and tests
# here, another one after each commit: all of them are more than an hour where the processors are
# shared. Without the variable, as in make soak and make test-root, all run.
.PHONY: test
test: export CAISSON_TEST_TURN := $(shell git rev-list --count HEAD 2>/dev/null || echo 0)/5
test: ## in about 30 minutes: packages, suites, virtual machine, two minutes of chaos (root)
	$(MAKE) setup
	$(MAKE) test-strict
	$(MAKE) test-root
	$(MAKE) test-vm
	$(MAKE) test-package-content
	$(MAKE) chaos

.PHONY: test-node
test-node: ## tests of caisson-node without a cluster; not in make test: a thousand packages of Kubernetes
	cd node && export GOWORK=off && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test ./...
	cd tools/kubernetes && GOWORK=off $(GO) mod tidy -diff

.PHONY: test-kubernetes
test-kubernetes: build kubernetes node ## caisson-node on two daemons against a real control plane, with figures (root)
	@$(root)
	cd node && GOWORK=off CAISSON_BIN_DIR=$(CURDIR)/$(BIN) CAISSON_KUBERNETES=$(CURDIR)/$(BUILD)/kubernetes $(GO) test -count=1 -timeout 60m -v ./tests/cluster

CAISSON_CHAOS ?= 2m

.PHONY: chaos
chaos: build ## kill the daemon, containerd, shims and inits at random under load for CAISSON_CHAOS (default 2m; root)
	@$(root)
	$(STRICT) CAISSON_CHAOS=$(CAISSON_CHAOS) $(GO) test -count=1 -timeout 0 -v -run '^TestChaos$$' ./tests/fault

.PHONY: soak
soak: build ## all suites and the virtual machines whole, also on arm64, what inputs of routes cost, an upgrade, two hours of chaos (root)
	@$(root)
	$(MAKE) test-vm
	$(MAKE) test-vm-arm64
	$(MAKE) test-root
	$(STRICT) CAISSON_COST=whole $(GO) test -count=1 -vet=off -timeout 30m ./tests/cost/...
	$(MAKE) test-package FROM=HEAD~20
	$(MAKE) chaos CAISSON_CHAOS=2h

.PHONY: test-vm
test-vm: build ## the same promises on a kernel with cgroup v2 only, in a virtual machine
	tests/vm/run.sh

.PHONY: test-vm-arm64
test-vm-arm64: build-arm64 ## what depends on the architecture, and whole sandboxes, on an emulated arm64
	scripts/cross.sh arm64 tests/vm/run.sh

.PHONY: demo
demo: ## build everything, then show real work and real attacks in sandboxes (root)
	$(MAKE) setup
	$(MAKE) build
	scripts/demo.sh

.PHONY: bench
bench: build registry ## measure, against ctr and whatever else this host has (root)
	$(GO) run ./tests/bench

# --- install -------------------------------------------------------------------

.PHONY: install
install: build ## install below PREFIX (default /usr/local)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/libexec/caisson'
	install -m 0755 $(BIN)/caisson $(BIN)/caissond '$(DESTDIR)$(PREFIX)/bin/'
	install -m 0755 $(addprefix $(BIN)/,$(LIBEXEC)) '$(DESTDIR)$(PREFIX)/libexec/caisson/'
	find README.md docs -name '*.md' -exec install -D -m 0644 {} '$(DESTDIR)$(PREFIX)/share/doc/caisson/{}' ';'

# --- packages ------------------------------------------------------------------

# ARCHS are the architectures to make packages for. One that is not this host's is built
# with Debian's cross compiler. SOURCE_DATE_EPOCH is the time of all packaged files: that of the
# commit, or now where the source is no checkout.
ARCHS    ?= amd64 arm64
HOSTARCH := $(shell $(GO) env GOHOSTARCH)
PACKAGES := $(BUILD)/package
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || date +%s)

# Our programs and the engine for another architecture, in build/ARCH/bin.
build-%: $(BASE)
	scripts/cross.sh $* $(MAKE) build BIN=$(BUILD)/$*/bin PACKED= VERSION='$(VERSION)' COMMIT='$(COMMIT)'

.PHONY: package
package: build $(addprefix build-,$(filter-out $(HOSTARCH),$(ARCHS))) $(NFPM) $(SBOM) ## packages with the engine, for Debian and rpm, and a tarball, into build/package/ (ARCHS, SIGNING_KEY=ed25519.pem)
	scripts/setup.sh zstd
	rm -rf $(PACKAGES) && mkdir -p $(PACKAGES)/work
	$(GO) build -trimpath -tags man -o $(PACKAGES)/work/man1 ./cmd/caisson/caisson-whole
	$(GO) build -trimpath -tags man -o $(PACKAGES)/work/man8 ./cmd/caissond
	cp $(BIN)/caisson-whole $(PACKAGES)/work/caisson
	export VERSION='$(VERSION)' LIBEXEC='$(LIBEXEC)' SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH); $(foreach arch,$(ARCHS),scripts/package.sh $(arch) \
	  $(if $(filter $(HOSTARCH),$(arch)),$(BIN),$(BUILD)/$(arch)/bin) $(PACKAGES) &&) true
	rm -r $(PACKAGES)/work
	cd $(PACKAGES) && sha256sum caisson* > SHA256SUMS
	$(if $(SIGNING_KEY),openssl pkeyutl -sign -rawin -inkey '$(SIGNING_KEY)' -in $(PACKAGES)/SHA256SUMS -out $(PACKAGES)/SHA256SUMS.sig)
	@ls -l $(PACKAGES)

.PHONY: test-package-content
test-package-content: ## look into the packages of this architecture, and make them twice
	$(MAKE) package ARCHS=$(HOSTARCH)
	CAISSON_BIN_DIR=$(CURDIR)/$(BIN) CAISSON_PACKAGE_DIR=$(CURDIR)/$(PACKAGES) CAISSON_TEST_STRICT=1 $(GO) test -count=1 ./tests/package
	rm -rf $(BUILD)/first && cp -r $(PACKAGES) $(BUILD)/first
	$(MAKE) package ARCHS=$(HOSTARCH)
	diff -r $(BUILD)/first $(PACKAGES)
	rm -r $(BUILD)/first

# The next version is these programs under another name, for the test of an upgrade. The first one
# is these programs too, or those of the commit FROM.
.PHONY: test-package
test-package: ## install, upgrade, reboot, remove and purge the .deb in a virtual machine with systemd (FROM=COMMIT: upgrade from it; root)
	@$(root)
	$(if $(FROM),rm -rf $(BUILD)/from && git clone -q --shared . $(BUILD)/from && git -C $(BUILD)/from checkout -q $$(git rev-parse $(FROM)))
	$(if $(FROM),$(MAKE) -C $(BUILD)/from package ARCHS=$(HOSTARCH))
	$(MAKE) package ARCHS=$(HOSTARCH)
	mkdir -p $(BUILD)/next/bin && cp -p $(ENGINE) $(BUILD)/next/bin/
	$(MAKE) package ARCHS=$(HOSTARCH) BIN=$(BUILD)/next/bin PACKAGES=$(BUILD)/next/package VERSION=9.9.9-next
	tests/package/vm.sh $(if $(FROM),$(BUILD)/from/)$(PACKAGES)/*.deb $(BUILD)/next/package/*.deb

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) $(BUILD) $(BASE)
