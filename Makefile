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

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

STRIPPED := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
SOURCES := $(shell find . \( -path ./.git -o -path ./$(BUILD) -o -path ./$(BIN) -o -path ./tools -o -path ./tests \) -prune \
             -o -type f \( -name '*.go' ! -name '*_test.go' -o -path '*/assets/*' \) -print 2>/dev/null)

ENGINE  := $(addprefix $(BIN)/,containerd containerd-shim-runc-v2 runc)
OURS    := $(addprefix $(BIN)/,caisson caisson-init caisson-gateway caisson-shim)
DAEMON  := $(BIN)/caissond
OLD     := $(addprefix $(BUILD)/containerd17/,containerd containerd-shim-runc-v2 ctr)
RUNSC   := $(BUILD)/gvisor/runsc
TESTREG := $(BUILD)/registry/registry
BROWSER := $(BUILD)/browser/browser
BASE    := $(ASSETS)/busybox $(ASSETS)/applets.txt
PLUGINS := $(addprefix $(BUILD)/protoc/,protoc-gen-go protoc-gen-connect-go)

# The suites that drive a whole daemon; every other package is a unit.
ROOT_SUITES := ./tests/fault/... ./tests/integration/... ./tests/network/... ./tests/escape/... ./tests/programs/... ./tests/sdk/... ./tests/agents/... ./tests/page/...
UNIT        = $$($(GO) list ./... ./api/... | grep -vE '/tests/(integration|escape|network|fault|programs|sdk|agents|page|vm|bench)(/|$$)')

# The real programs of tests/programs, what pushes and keeps images, the browser of tests/page, and what tests/sdk builds with: nodejs has npm in some
# distributions, and Debian has a package of its own.
PROGRAMS := $(shell command -v npm >/dev/null || echo npm) nodejs python3 git passwd util-linux openjdk-17-jre-headless hostname fakeroot strace valgrind skopeo podman chromium

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
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(STRIPPED)' -o $@ ./cmd/$*
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
generate: $(PLUGINS) $(BASE) ## write the generated files again (API from the proto, docs/reference/errors.md, Python SDK)
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
test-strict: build containerd17 registry ## tests of all packages, with those that need root (root)
	@$(root)
	$(STRICT) $(GO) test -count=1 -vet=off -timeout 10m $(UNIT)

# Two suites run at a time: each waits more than it computes. The longest goes first.
.PHONY: test-root
test-root: build containerd17 gvisor registry browser ## all suites that drive a whole daemon, against the real containerd and runc (root)
	@$(root)
	scripts/setup.sh $(PROGRAMS)
	$(STRICT) $(GO) test -count=1 -vet=off -timeout 20m -p 2 -skip "^TestChaos$$" $(ROOT_SUITES)

.PHONY: test
test: ## every test, in about 25 minutes: packages, suites, virtual machine, two minutes of chaos (root)
	$(MAKE) setup
	$(MAKE) test-strict
	$(MAKE) test-root
	$(MAKE) test-vm
	$(MAKE) chaos

CAISSON_CHAOS ?= 2m

.PHONY: chaos
chaos: build ## kill the daemon, containerd, shims and inits at random under load for CAISSON_CHAOS (default 2m; root)
	@$(root)
	$(STRICT) CAISSON_CHAOS=$(CAISSON_CHAOS) $(GO) test -count=1 -timeout 0 -v -run '^TestChaos$$' ./tests/fault

.PHONY: soak
soak: ## two hours of chaos (root)
	$(MAKE) chaos CAISSON_CHAOS=2h

.PHONY: test-vm
test-vm: build ## the same promises on a kernel with cgroup v2 only, in a virtual machine
	tests/vm/run.sh

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
	install -m 0755 $(BIN)/caisson-init $(BIN)/caisson-gateway $(BIN)/caisson-shim $(ENGINE) '$(DESTDIR)$(PREFIX)/libexec/caisson/'

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) $(BUILD) $(BASE)
