# `make` prints what there is. Everything runs from a plain checkout; `make
# test` needs Go and make and nothing else.

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO      ?= go
MODULE  := github.com/pilotlight-dev/pilotlight
BUILD   := build
PROGRAMS = $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))

# One setting for all but `make race`, so that they share a build cache and no
# C compiler is needed.
export CGO_ENABLED ?= 0

# What --version prints. Without git the values are empty and the binary says
# "dev". The date is the commit's, so that a commit builds to the same bytes.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell git log -1 --format=%cI 2>/dev/null)
INFO    := $(MODULE)/internal/buildinfo
LDFLAGS  = -s -w -X $(INFO).version=$(VERSION) -X $(INFO).commit=$(COMMIT) -X $(INFO).date=$(DATE)

# Tools are built from their Go modules into a folder of the user's cache, one
# for each version of the tool and of Go (a linter must be as new as the Go
# whose code it reads).
GOLANGCI_VERSION      := v2.15.0
PROTOC_VERSION        := 3.21.12
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GRPC       := v1.6.0
GOVERSION = $(shell $(GO) env GOVERSION)
TOOLS     = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pilotlight/tools
GOLANGCI  = $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)-$(GOVERSION)/golangci-lint
PROTO_BIN = $(TOOLS)/protoc-gen-$(PROTOC_GEN_GO_VERSION)-$(PROTOC_GEN_GRPC)-$(GOVERSION)

DEMO_FLAGS ?=
# Tests that read the project's files are not safe to take from the test cache.
TESTFLAGS  ?= -count=1
PKGS       ?= ./...
FUZZTIME   ?= 30s

.PHONY: help
help: ## print this list
	@echo "usage: make TARGET [VARIABLE=value]"
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build every program to ./bin, stamped with version, commit and date
	@mkdir -p bin
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ $(addprefix ./cmd/,$(PROGRAMS))

.PHONY: demo
demo: ## scale a model to zero and back on this machine (DEMO_FLAGS=...)
	@mkdir -p bin
	@$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/pilotlight ./cmd/pilotlight
	@bin/pilotlight demo $(DEMO_FLAGS)

.PHONY: test
test: ## vet and test everything (PKGS=./scaler/... TESTFLAGS=...)
	$(GO) vet $(PKGS)
	@$(GO) run ./hack/testcount -out $(BUILD)/test/count.txt -- -vet=off -timeout=5m $(TESTFLAGS) $(PKGS)

.PHONY: race
race: ## test everything with the race detector (needs a C compiler)
	@CGO_ENABLED=1 $(GO) run ./hack/testcount -out $(BUILD)/test/count.txt -- -race -vet=off -shuffle=on -timeout=10m $(TESTFLAGS) $(PKGS)

.PHONY: lint
lint: $(GOLANGCI) ## lint and check the formatting
	$(GOLANGCI) run $(PKGS)
	$(GOLANGCI) fmt --diff

.PHONY: fmt
fmt: $(GOLANGCI) ## format the Go code (gofumpt)
	$(GOLANGCI) fmt

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION) with $(GOVERSION), once"
	GOFLAGS= GOBIN=$(dir $@) $(GO) install -trimpath github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: cover
cover: ## prove that tests reach every statement of the policy
	@./hack/cover.sh ./scaler/policy $(BUILD)/cover

.PHONY: fuzz
fuzz: ## fuzz each fuzz target for FUZZTIME
	@./hack/fuzz.sh $(FUZZTIME) $(PKGS)

.PHONY: bench
bench: ## measure what the design promises; figures to build/bench/bench.json
	@$(GO) run ./test/bench -out $(BUILD)/bench/bench.json

.PHONY: bench-activator
bench-activator: ## measure the activator beside a bare proxy; figures to build/bench/activator.json (BENCH_FLAGS=-only=latency)
	@mkdir -p $(BUILD)/tools
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BUILD)/tools/ ./cmd/pilotlight-activator ./cmd/pilotlight-scaler
	@$(GO) run ./test/benchactivator -activator $(BUILD)/tools/pilotlight-activator -scaler $(BUILD)/tools/pilotlight-scaler -out $(BUILD)/bench/activator.json $(BENCH_FLAGS)

.PHONY: bench-policy
bench-policy: ## play the policy and its peers over the traces; figures to build/bench/policy.json
	@$(GO) run ./test/benchpolicy -out $(BUILD)/bench/policy.json

# The S3 server and the peer are modules of their own, so that nothing of them
# gets into Pilotlight's dependencies.
VERSITYGW := $(abspath $(BUILD))/tools/versitygw
S5CMD     := $(abspath $(BUILD))/tools/s5cmd

$(VERSITYGW): test/tools/versitygw/go.mod
	$(GO) build -C test/tools/versitygw -trimpath -o $@ github.com/versity/versitygw/cmd/versitygw

$(S5CMD): test/tools/s5cmd/go.mod
	$(GO) build -C test/tools/s5cmd -trimpath -o $@ github.com/peak/s5cmd/v2

# MLflow and OpenAI's client library come as Python environments in the user's
# cache, built once from pinned requirements (hack/venv.sh); only this target
# needs python3.
MLFLOW_REQUIREMENTS := test/integration/mlflow/requirements.txt
OPENAI_REQUIREMENTS := test/integration/openai/requirements.txt

.PHONY: integration
integration: $(VERSITYGW) ## test against a real S3 server, MLflow and OpenAI client, on loopback (needs python3)
	@mkdir -p $(BUILD)/tools
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BUILD)/tools/ $(addprefix ./cmd/,$(PROGRAMS))
	@mlflow=$$(./hack/venv.sh $(MLFLOW_REQUIREMENTS)) && openai=$$(./hack/venv.sh $(OPENAI_REQUIREMENTS)) && set -x && \
	PILOTLIGHT_VERSITYGW=$(VERSITYGW) PILOTLIGHT_MLFLOW=$$mlflow PILOTLIGHT_OPENAI=$$openai \
	PILOTLIGHT_FETCHER=$(abspath $(BUILD))/tools/pilotlight-fetcher PILOTLIGHT_CLI=$(abspath $(BUILD))/tools/pilotlight \
	PILOTLIGHT_ACTIVATOR=$(abspath $(BUILD))/tools/pilotlight-activator PILOTLIGHT_SCALER=$(abspath $(BUILD))/tools/pilotlight-scaler \
	$(GO) test -count=1 -timeout=10m $(INTEGRATION_FLAGS) ./test/integration/... ./test/conformance/registry

.PHONY: bench-fetch
bench-fetch: $(VERSITYGW) $(S5CMD) ## race the fetcher against s5cmd, cp and the AWS CLI (BENCH_FLAGS=-size=modest)
	@mkdir -p $(BUILD)/tools
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BUILD)/tools/pilotlight-fetcher ./cmd/pilotlight-fetcher
	@$(GO) run ./test/benchfetch -versitygw $(VERSITYGW) -s5cmd $(S5CMD) -fetcher $(BUILD)/tools/pilotlight-fetcher -out $(BUILD)/bench/fetch.json $(BENCH_FLAGS)

.PHONY: e2e-tools
e2e-tools: ## build Kubernetes and KEDA for make e2e, once for each version (20 minutes)
	@GO=$(GO) ./hack/e2e-tools.sh

.PHONY: e2e
e2e: ## play scenarios on a real control plane with real KEDA (E2E_RUN=regexp)
	@mkdir -p $(BUILD)/e2e
	@set -e; tools=$$(GO=$(GO) ./hack/e2e-tools.sh); \
	PILOTLIGHT_E2E_BIN=$$(echo "$$tools" | sed -n 1p) PILOTLIGHT_E2E_CRDS=$$(echo "$$tools" | sed -n 2p) PILOTLIGHT_E2E_OUT=$(abspath $(BUILD))/e2e \
	$(GO) test -count=1 -timeout=15m $(if $(E2E_RUN),-run '$(E2E_RUN)') $(TESTFLAGS) ./test/e2e

# Prometheus is what KEDA is compared with; without discovery of targets, which
# would be most of it.
PROMETHEUS := $(abspath $(BUILD))/tools/prometheus

$(PROMETHEUS): test/tools/prometheus/go.mod
	$(GO) build -C test/tools/prometheus -trimpath -tags remove_all_sd -ldflags '-s -w' -o $@ github.com/prometheus/prometheus/cmd/prometheus

.PHONY: bench-scale
bench-scale: $(PROMETHEUS) ## measure the scaler with 2,000 ScaledObjects, and waking beside KEDA's prometheus trigger (BENCH_FLAGS=-only=load)
	@mkdir -p $(BUILD)/tools
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BUILD)/tools/ ./cmd/pilotlight-activator ./cmd/pilotlight-scaler
	@set -e; tools=$$(GO=$(GO) ./hack/e2e-tools.sh); \
	$(GO) run ./test/benchscale -scaler $(BUILD)/tools/pilotlight-scaler -activator $(BUILD)/tools/pilotlight-activator -prometheus $(PROMETHEUS) \
	-bin "$$(echo "$$tools" | sed -n 1p)" -crds "$$(echo "$$tools" | sed -n 2p)" -out $(BUILD)/bench/scale.json $(BENCH_FLAGS)

.PHONY: e2e-report
e2e-report: ## write one HTML page from the timelines of make e2e
	@$(GO) run ./test/e2e/report -in $(BUILD)/e2e -out $(BUILD)/e2e/report.html && echo $(BUILD)/e2e/report.html

.PHONY: verify-deploy
verify-deploy: ## render the charts, and check every document on a real API server (DEPLOY_FLAGS=-update)
	@GO=$(GO) ./hack/verify-deploy.sh $(DEPLOY_FLAGS)

.PHONY: generate
generate: ## regenerate the protocol's code (needs protoc; see CONTRIBUTING.md)
	@./hack/generate.sh $(PROTO_BIN) $(PROTOC_VERSION) $(PROTOC_GEN_GO_VERSION) $(PROTOC_GEN_GRPC)

.PHONY: clean
clean: ## delete what the other targets made (tools stay in the cache)
	rm -rf bin $(BUILD)
