# Every command for working on Sluicegate. Needs Go, make (GNU make 3.81 or
# newer) and git; a C compiler only for the race detector.

# One toolchain everywhere: Go fetches it when another one is installed.
# go.mod, tools/go.mod and this line agree; a test of the root package says so.
export GOTOOLCHAIN := go1.26.11

GO       ?= go
ARGS     ?=
BENCH    ?= .
FUZZTIME ?= 30s
VULN     ?=

# Lint tools have a module file of their own, so that what they depend on never
# enters the product's module graph.
TOOL := $(GO) tool -modfile=tools/go.mod

# The three systems the product runs on. Code for each is vetted and linted
# everywhere, and without cgo, as it is shipped.
SYSTEMS := linux darwin windows

.DEFAULT_GOAL := help
.PHONY: help build run test check format format-check vet lint bench fuzz generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build bin/sluicegate
	@version=$$(git describe --always --dirty 2>/dev/null || echo dev); \
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$$version" -o bin/sluicegate ./cmd/sluicegate && \
	echo "built bin/sluicegate $$version"

run: build ## build, then run the daemon (ARGS="..." are passed on)
	@exec ./bin/sluicegate run $(ARGS)

# The probe builds the one standard package that needs both cgo and the race
# runtime, so a compiler without its headers counts as none.
test: ## run all tests that need no root
	@race=-race; \
	if ! $(GO) build -race -o /dev/null runtime/cgo >/dev/null 2>&1; then \
		race=; \
		echo "race detector is off because no C compiler works here"; \
	fi; \
	$(GO) test $$race -shuffle=on -count=1 ./...

# The state of the work tree: names, and content of what differs from the index
# or is untracked. A tree that is dirty before may stay dirty, but must not change.
TREE_STATE = { git status --porcelain --untracked-files=all; \
	git diff --no-ext-diff; \
	git -c core.quotePath=off ls-files --others --exclude-standard | git hash-object --stdin-paths; }

check: ## what a change must pass: format, vet, lint, tests, tree unchanged by them
	@state=$$(mktemp -d) && trap 'rm -rf "$$state"' EXIT && \
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then tree=yes; else tree=; fi && \
	if [ -n "$$tree" ]; then $(TREE_STATE) >"$$state/before"; fi; \
	for step in format-check vet lint test; do \
		echo "== $$step"; \
		$(MAKE) --no-print-directory $$step || exit 1; \
	done; \
	if [ -z "$$tree" ]; then echo "not a git work tree: whether tests changed it was not checked"; exit 0; fi; \
	$(TREE_STATE) >"$$state/after"; \
	if ! cmp -s "$$state/before" "$$state/after"; then \
		echo "the checks changed the work tree (< before, > after):"; \
		diff "$$state/before" "$$state/after"; \
		exit 1; \
	fi; \
	echo "== all checks passed"

format: ## format all Go files
	@$(TOOL) gofumpt -w .

format-check:
	@unformatted=$$($(TOOL) gofumpt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then \
		echo "not formatted (make format does it):"; echo "$$unformatted"; exit 1; \
	fi

vet: ## go vet for Linux, macOS and Windows
	@for os in $(SYSTEMS); do \
		GOOS=$$os CGO_ENABLED=0 $(GO) vet ./... || { echo "go vet: GOOS=$$os failed"; exit 1; }; \
	done

# The tool is built for this machine first and only then told about another
# system: "GOOS=windows go tool" would build a staticcheck for Windows.
lint: ## staticcheck for the three systems, tidy module files; VULN=1 adds govulncheck (needs its database)
	@staticcheck=$$($(TOOL) -n staticcheck) || exit 1; \
	for os in $(SYSTEMS); do \
		GOOS=$$os CGO_ENABLED=0 "$$staticcheck" ./... || { echo "staticcheck: GOOS=$$os failed"; exit 1; }; \
	done
	@$(GO) mod tidy -diff
	@cd tools && $(GO) mod tidy -diff
	@if [ -n "$(VULN)" ]; then $(TOOL) govulncheck ./...; fi

bench: ## run the benchmarks; keep two outputs and compare them with benchstat (BENCH=regexp)
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# "go test -list" prints the names of a package and then its "ok" line.
fuzz: ## run every fuzz target for FUZZTIME (30s) each
	@list=$$($(GO) test -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	targets=$$(echo "$$list" | awk '/^Fuzz/ { names[++n] = $$1 } \
		$$1 == "ok" { for (i = 1; i <= n; i++) print $$2 ":" names[i]; n = 0 }'); \
	if [ -z "$$targets" ]; then echo "no fuzz target found"; exit 1; fi; \
	for target in $$targets; do \
		echo "== $$target"; \
		$(GO) test -run '^$$' -fuzz "^$${target##*:}\$$" -fuzztime $(FUZZTIME) "$${target%:*}" || exit 1; \
	done

generate: ## write the generated files anew (tests named Generated compare them)
	UPDATE=1 $(GO) test -count=1 -run Generated ./...

clean: ## remove what builds and tests left behind
	rm -rf bin dist coverage coverage.out coverage.html bench*.txt
