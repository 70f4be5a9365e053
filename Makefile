# Throughline. It needs Go and make; everything else is fetched, found or installed by what is called here.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# A repository that git refuses to read (a clone of another user, say) must build all the same.
export GOFLAGS ?= -buildvcs=false

MODULES := pkg proto services scripts
PACKAGES := $(MODULES:%=./%/...)

# One test binary may start a whole system, several times over, on a slow machine.
TESTFLAGS ?= -timeout=30m -parallel=3
FUZZTIME ?= 10s
RACE_PACKAGES ?= ./pkg/... ./services/...
BENCH ?= .
BENCHCOUNT ?= 5
ARGS ?=

# Not a tool line of a module: its dependencies would raise versions for everybody in the workspace.
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# with-postgres runs a command beside one throw-away Postgres cluster, installing Postgres where it is missing, and ends
# with the command's status. Built first, so that nothing is printed after the command's own last line.
WITH_POSTGRES := .bin/pgtest-run

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Run

.PHONY: demo
demo: .bin/throughline ## play orders that go right and wrong on a fresh system, and check the money
	@exec .bin/throughline demo $(ARGS)

# JAEGER=1 runs a real Jaeger beside it. Its build takes ten minutes the first time.
.PHONY: up
up: .bin/throughline $(if $(JAEGER),.bin/jaeger .bin/with-jaeger) ## run everything on this machine until Ctrl-C; options in ARGS="--http 127.0.0.1:9000"; JAEGER=1 shows traces
	@exec $(if $(JAEGER),.bin/with-jaeger .bin/jaeger deploy/jaeger/config.yaml) .bin/throughline up $(ARGS)

.PHONY: build
build: ## build all programs into .bin
	@echo "==> building all programs (minutes the first time)"
	@mkdir -p .bin
	@go build -o .bin/ ./services/...

##@ Test

.PHONY: test
test: $(WITH_POSTGRES) chromium ## run all tests of all modules on a real Postgres, a real JetStream and in a real browser
	@echo "==> building and running all tests (minutes the first time)"
	@# The first takes half of the time, most of it waiting; the others run meanwhile.
	@MODEL_REPORT=$(CURDIR)/.bin/model.txt $(WITH_POSTGRES) -- go test $(TESTFLAGS) ./scripts/e2e $(PACKAGES)
	@cat .bin/model.txt 2>/dev/null || true

.PHONY: test-race
test-race: $(WITH_POSTGRES) c-compiler ## run the tests of pkg and services under the race detector
	@echo "==> building and running the tests of pkg and services with the race detector"
	@$(WITH_POSTGRES) -- go test -race $(TESTFLAGS) $(RACE_PACKAGES)

.PHONY: test-jaeger
test-jaeger: $(WITH_POSTGRES) .bin/jaeger chromium ## play orders against a real Jaeger, find each there by its key, and compare with what is told elsewhere
	@echo "==> looking for orders in a real Jaeger"
	@go vet -tags jaeger ./scripts/e2e
	@JAEGER=$(CURDIR)/.bin/jaeger $(WITH_POSTGRES) -- go test $(TESTFLAGS) -count=1 -tags jaeger -run '^TestJaeger' ./scripts/e2e

SOAK := go test -count=1 -timeout=0 -run '^TestModel$$' -v ./pkg/internal/sagasim
.PHONY: soak
soak: soak-sagas soak-outbox soak-system ## run the long forms of tests: SCHEDULES (a million) of sagas, ROWS (ten million) of an outbox, minutes of outage

.PHONY: soak-sagas
soak-sagas: ## run sagas through SCHEDULES (a million) schedules of what can go wrong, and print what did
	@echo "==> running $${SCHEDULES:-1000000} schedules (half an hour or so for a million on two processors)"
	@SCHEDULES=$${SCHEDULES:-1000000} $(SOAK) | grep -vE '^(=== |--- PASS|PASS$$|ok )'

.PHONY: soak-outbox
soak-outbox: $(WITH_POSTGRES) ## drain and search ROWS (ten million) of an outbox; needs some 20 GB of disk
	@echo "==> draining and searching $${ROWS:-10000000} rows (an hour or so for ten million on two processors)"
	@THROUGHLINE_SOAK_ROWS=$${ROWS:-10000000} $(WITH_POSTGRES) -- go test -count=1 -timeout=0 -parallel=1 -v \
		-run '^(TestBacklogOfAnySize|TestSearchInALargeArchive)$$' ./pkg/outbox

.PHONY: soak-system
soak-system: $(WITH_POSTGRES) ## hold transactions open, and take the broker away, for minutes
	@echo "==> running the whole system through minutes of each fault (half an hour or so)"
	@THROUGHLINE_SOAK=1 $(WITH_POSTGRES) -- go test -count=1 -timeout=0 -v -run '^(TestOPEN20|TestOPEN22|TestEventOrder)' ./scripts/e2e

.PHONY: chaos
chaos: ## run ORDERS (10000) orders at RATE (20) a second through faults, kills and cancels from SEED, and check the money
	@echo "==> running $${ORDERS:-10000} orders at $${RATE:-20} a second ($$(( $${ORDERS:-10000} / $${RATE:-20} / 60 + 5 )) minutes or so)"
	@SEED=$${SEED:-$$((RANDOM + 1))} ORDERS=$${ORDERS:-10000} RATE=$${RATE:-20} go test -count=1 -timeout=0 -v ./scripts/chaos | grep -vE '^(=== |PASS$$|ok )'

.PHONY: crash-table
crash-table: $(WITH_POSTGRES) ## kill the services at every edge, and write what became of the orders to scripts/e2e/crash/README.md
	@CRASH_TABLE_UPDATE=1 $(WITH_POSTGRES) -- go test -count=1 $(TESTFLAGS) ./scripts/e2e/crash

.PHONY: fuzz
fuzz: ## fuzz every decoder for FUZZTIME each
	@grep -rHoE '^func Fuzz\w+' --include='*_test.go' $(MODULES) | while IFS=: read -r file func; do \
		echo "==> $${func#func } in $${file%/*}"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "./$${file%/*}" </dev/null; \
	done

# Built first, since the program calls itself for each of its parts. Results are in .run/bench/latest.json.
.PHONY: bench
bench: build-bench ## measure the system beside the machine's ceiling; QUICK=1 takes under a minute, ARGS="--help" tells more
	@exec .bin/bench $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-compare
bench-compare: build-bench ## compare results OLD=... and NEW=...; fails when an order costs a tenth more
	@[ -n "$(OLD)" ] && [ -n "$(NEW)" ] || { echo 'usage: make bench-compare OLD=before.json NEW=after.json'; exit 1; }
	@exec .bin/bench compare "$(OLD)" "$(NEW)"

.PHONY: build-bench
build-bench:
	@mkdir -p .bin
	@go build -o .bin/bench ./scripts/bench

.PHONY: bench-go
bench-go: $(WITH_POSTGRES) ## run the Go benchmarks BENCHCOUNT times and sum them up; BENCH selects
	@$(WITH_POSTGRES) -- go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) $(TESTFLAGS) $(PACKAGES) | tee .bin/bench.txt
	@go tool benchstat .bin/bench.txt

##@ Check

.PHONY: lint
lint: ## format, vet, golangci-lint, and the protos' style
	@echo "==> gofmt"
	@files=$$(gofmt -l $(MODULES)); [ -z "$$files" ] || { printf 'run make fmt; not formatted:\n%s\n' "$$files"; exit 1; }
	@echo "==> go vet"
	@go vet $(PACKAGES)
	@echo "==> buf (minutes to build the first time)"
	@go tool buf lint
	@go tool buf format --diff --exit-code
	@echo "==> golangci-lint (minutes to build the first time)"
	@for m in $(MODULES); do echo "    $$m"; (cd $$m && $(GOLANGCI) run ./...); done

.PHONY: fmt
fmt: ## format Go and protos
	@gofmt -w $(MODULES)
	@go tool buf format --write

.PHONY: generate
generate: ## write the code, the OpenAPI and the AsyncAPI document that come from the protos
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(call generate-into,"$$tmp"); \
	rm -rf proto/gen; \
	cp -R "$$tmp"/proto/. proto/

.PHONY: check
check: lint check-generated check-asyncapi check-breaking check-modules check-release ## lint, and what CI checks beside the tests

.PHONY: check-generated
check-generated: ## compare the committed generated code with what the protos give
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(call generate-into,"$$tmp"); \
	for d in openapi asyncapi; do cp proto/$$d/*.go "$$tmp"/proto/$$d/; done; \
	for d in gen openapi asyncapi; do diff -r "$$tmp"/proto/$$d proto/$$d || { echo "proto/$$d is not what the protos give: run make generate"; exit 1; }; done

# Both go through a folder of their own: a generator that fails halfway leaves the tree as it was, and a file that no
# proto gives any more is found.
define generate-into
	echo "==> generating from the protos (minutes to build the generators the first time)"; \
	go tool buf generate --template proto/buf.gen.yaml -o $(1)
endef

# The specification's own parser is a Node.js program. It is installed beside the programs, by its lock file and without
# running anything, and then needs no network.
ASYNCAPI_CHECK := .bin/asyncapicheck
.PHONY: check-asyncapi
check-asyncapi: ## validate the AsyncAPI document with the specification's own parser, which needs Node.js
	@for p in node npm; do command -v $$p >/dev/null || { \
		echo "$$p is missing: install Node.js 20 or later with npm (apt-get install nodejs npm, or brew install node)"; exit 1; }; done
	@echo "==> validating proto/asyncapi/asyncapi.yaml"
	@mkdir -p $(ASYNCAPI_CHECK)
	@cp scripts/asyncapicheck/{package.json,package-lock.json,.npmrc,validate.mjs} $(ASYNCAPI_CHECK)/
	@cmp -s $(ASYNCAPI_CHECK)/package-lock.json $(ASYNCAPI_CHECK)/node_modules/installed.json || \
		(cd $(ASYNCAPI_CHECK) && npm ci --ignore-scripts && cp package-lock.json node_modules/installed.json)
	@node $(ASYNCAPI_CHECK)/validate.mjs proto/asyncapi/asyncapi.yaml

# What was released is a promise; before the first release, the commit before is. A clone may hold neither.
GIT := git -c safe.directory=*
.PHONY: check-breaking
check-breaking: ## look for breaking changes of the protos since the last tag, or else the commit before
	@base=$$($(GIT) describe --tags --abbrev=0 2>/dev/null || $(GIT) rev-parse --quiet --verify 'HEAD~1^{commit}' || true); \
	if [ -z "$$base" ]; then echo "==> buf breaking: this clone has no earlier commit to compare with"; exit 0; fi; \
	echo "==> buf breaking against $$base"; \
	tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(GIT) archive "$$base" buf.yaml proto | tar -x -C "$$tmp"; \
	go tool buf breaking --against "$$tmp"

# Outsiders get pkg and proto without the workspace, so they must build, and be tidy, without it.
.PHONY: check-modules
check-modules: ## build pkg and proto without the workspace, and compare every go.mod with the imports
	@for m in pkg proto; do echo "==> building $$m without the workspace"; (cd $$m && GOWORK=off go vet ./...); done
	@for m in $(MODULES); do echo "==> go mod tidy -diff in $$m"; (cd $$m && go mod tidy -diff); done

.PHONY: check-release
check-release: ## build the services as a release does: static, without the workspace
	@echo "==> building the release of services"
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	cd services && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$$tmp"/ ./...

# The operators' page is tested in a browser, which is installed where it is missing and that is allowed.
.PHONY: chromium
chromium:
	@go run ./scripts/cmd/chromium

.PHONY: c-compiler
c-compiler:
	@[ "$$(go env CGO_ENABLED)" = 1 ] || { echo "the race detector needs a C compiler: install gcc, or Xcode's command line tools"; exit 1; }

# Go knows best what is out of date, so the programs are always asked for.
.PHONY: $(WITH_POSTGRES) .bin/throughline
$(WITH_POSTGRES):
	@mkdir -p .bin
	@go build -o $@ ./pkg/postgres/pgtest/cmd/pgtest-run

.bin/throughline: build

# A module of its own, outside of the workspace: what Jaeger needs must raise versions for nobody. Built again when its version changes.
.bin/jaeger: scripts/jaeger/go.mod scripts/jaeger/go.sum
	@echo "==> building Jaeger (ten minutes on two processors the first time)"
	@mkdir -p .bin
	@cd scripts/jaeger && GOWORK=off go build -o ../../.bin/jaeger github.com/jaegertracing/jaeger/cmd/jaeger

.PHONY: .bin/with-jaeger
.bin/with-jaeger:
	@mkdir -p .bin
	@go build -o $@ ./scripts/cmd/with-jaeger
