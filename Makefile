# Everything works on a machine with only Go and make. A C compiler adds the
# race detector. The first `make lint` builds the linter (2 minutes), the first
# `make e2e` builds kube-apiserver and etcd (10 minutes); both are cached.

# Linters and formatters come from a module of their own, at pinned versions.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

# The library and what is tested with it. e2e needs the real servers and has its
# own target; tools and e2e/servers have no code of ours to test.
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './e2e/*' -not -path './tools/*' | sort))

.DEFAULT_GOAL := help
.PHONY: help demo bench test lint vet unit race model examples e2e nightly kill powercut damage iofault fuzz fmt

help: ## List the targets
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## Restart an informer warm and compare it with client-go (ARGS="-objects 30000")
	go run ./examples/warmrestart $(ARGS)

bench: ## Measure informers beside client-go's, 20 minutes (ARGS="-suites pods -pods 10000")
	cd bench && go run . $(ARGS)

test: lint vet unit race model examples ## Lint, vet, unit tests, race detector, model, examples

lint: ## Check style and formatting of all modules
	@set -e; for dir in $(MODULES) e2e; do \
		echo "golangci-lint run  # in $$dir"; (cd $$dir && $(TOOL) golangci-lint run ./...); \
	done
	@echo "gofumpt -l e2e/servers"; unformatted=$$($(TOOL) gofumpt -l e2e/servers); \
		[ -z "$$unformatted" ] || { echo "run make fmt: $$unformatted"; exit 1; }

vet: ## Run go vet on all modules
	@set -e; for dir in $(MODULES) e2e; do echo "go vet  # in $$dir"; (cd $$dir && go vet ./...); done

unit: ## Run all tests but those in e2e
	@set -e; for dir in $(MODULES); do echo "go test  # in $$dir"; (cd $$dir && go test -timeout 20m ./...); done

# Long randomised tests respect -short: they have had their full run in unit.
race: ## Run the tests again with the race detector (needs a C compiler)
ifeq ($(shell go env CGO_ENABLED),1)
	@set -e; for dir in $(MODULES); do echo "go test -race -short  # in $$dir"; (cd $$dir && go test -timeout 20m -race -short ./...); done
else
	@echo "go test -race: left out, it needs cgo and a C compiler"
endif

examples: ## Run what the documentation shows
	go test -run '^Example' ./...
	go run ./examples/warmrestart -objects 2000

e2e: ## Run the tests against a real kube-apiserver and etcd
	cd e2e && go run ./cmd/buildservers
	cd e2e && go test -timeout 60m -v ./...

# The campaigns. make test has a bounded run of each, and all of model. They print
# the line that repeats the decisions of a run, if not its timing. What lacks strace,
# or may not mount, is skipped unless WARMCACHE_REQUIRE_FAULTS says otherwise.
SEED     ?= 0
OPS      ?= 1000000
KILLS    ?= 1000
STATES   ?= 5000
CASES    ?= 20000
FAULTS   ?= 300
FUZZTIME ?= 1m
CAMPAIGN := go test -count=1 -timeout 90m -v

nightly: ## Run all campaigns, also after one that fails
	@failed=; for campaign in model kill powercut damage iofault fuzz; do \
		$(MAKE) $$campaign || failed="$$failed $$campaign"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

model: ## Compare OPS=1000000 random operations on indexers with client-go's
	go test -count=1 -timeout 90m ./indexer -run TestIndexer_RandomOperations -ops $(OPS) -seed $(SEED)

kill: ## Kill a process KILLS=1000 times and compare what it knew with the server
	$(CAMPAIGN) ./internal/crashtest -run TestKill -kills $(KILLS) -seed $(SEED)

powercut: ## Open STATES=5000 states that a power cut may leave (needs strace)
	WARMCACHE_REQUIRE_FAULTS=strace $(CAMPAIGN) ./internal/powercut -run TestPowerCut -states $(STATES) -seed $(SEED)

damage: ## Use CASES=20000 damaged files, and more that are damaged while open
	$(CAMPAIGN) ./internal/damage -cases $(CASES) -seed $(SEED)

# FAULTS is one part of it. The others, each kind of fault in the first list, in Open
# and under a damaged file, and full disks, take a minute or two however small it is.
iofault: ## Let the disk fail FAULTS=300 times under running informers (needs strace and root)
	WARMCACHE_REQUIRE_FAULTS=all $(CAMPAIGN) ./internal/crashtest -run '^TestDisk|FullDisk' -faults $(FAULTS) -seed $(SEED)

# One after the other, because go test fuzzes one target at a time. What fails is
# kept in testdata/fuzz of the package, where go test finds it again.
fuzz: ## Fuzz each reader of bytes for FUZZTIME=1m
	@set -e; grep -rl --include=*_test.go '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6-); do \
			echo "go test -fuzz $$target $$dir"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$dir; \
		done; \
	done

fmt: ## Format all modules
	@set -e; for dir in $(MODULES) e2e; do (cd $$dir && $(TOOL) golangci-lint fmt ./...); done
	$(TOOL) gofumpt -w e2e/servers
