# Two commands do everything, set-up included: make demo, make test.

# Where Go's own archive goes; root's PATH under sudo often lacks it.
export PATH := $(PATH):/usr/local/go/bin

# Static, without paths of this machine: the same commit gives the same bytes.
# The version is the commit's; a tree without git has none.
STAMP := $(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo true || echo false)
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=$(STAMP) -ldflags '-s -w -buildid='
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 10s

.PHONY: help build test demo sandbox-image bench lint fuzz mutations clean

help:
	@echo 'make demo           run the demo: a sealed run, its patch, its evidence'
	@echo 'make test           run all tests, on a real Docker Engine where there is one'
	@echo 'make build          build bin/countersign and bin/countersign-shim'
	@echo 'make sandbox-image  make the image countersign/sandbox:latest from packages'
	@echo 'make bench          measure what has a goal, and print both'
	@echo 'make lint           gofmt, go vet, staticcheck'
	@echo 'make fuzz           run each fuzz target for FUZZTIME ($(FUZZTIME))'
	@echo 'make mutations      break one control at a time and see that the drill notices (two hours)'
	@echo 'make clean          remove bin/'

build:
	@.ci/need-go
	$(BUILD) -o bin/ ./app/countersign ./runner/shim/countersign-shim

test:
	@.ci/test

demo:
	@.ci/demo

sandbox-image:
	@.ci/sandbox-image

bench: build
	@go run ./.ci/bench

lint:
	@test -z "$$(gofmt -l app policy runner .ci)" || { gofmt -d app policy runner .ci; exit 1; }
	go vet ./... ./.ci/bench
	go run $(STATICCHECK) ./... ./.ci/bench

fuzz:
	@.ci/fuzz $(FUZZTIME)

mutations:
	@.ci/mutations
	@.ci/mutations --blind

clean:
	rm -rf bin
