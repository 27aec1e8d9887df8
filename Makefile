# The two front doors: `make serve` and `make test`. Everything else is CMake (CMakePresets.json).
SHELL := /bin/bash

HOST ?= 127.0.0.1
PORT ?= 8000
JOBS ?= $(shell nproc)
CACHE ?= $(or $(THALWEG_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thalweg)
MODEL ?=

BINARY := build/release/bin/thalweg

.PHONY: serve test build cuda cuda-configure cuda-test-binaries deps format format-check layers clean help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what a build needs (Debian 12, Ubuntu 24.04)
	@tools/install_deps.sh

build: deps ## release binary at build/release/bin/thalweg
	@cmake --preset release -DTHALWEG_TESTS=OFF > build.log 2>&1 || { cat build.log; exit 1; }; rm -f build.log
	@cmake --build --preset release -j $(JOBS) --target thalweg

cuda-configure: deps
	@tools/install_cuda.sh "$(CACHE)/cuda"
	@cmake --preset release -DTHALWEG_CUDA=ON -DTHALWEG_CUDA_TOOLKIT="$(CACHE)/cuda/nvidia/cu13" > build.log 2>&1 || \
	  { cat build.log; exit 1; }; rm -f build.log

cuda: cuda-configure ## the release binary and build/release/bin/libthalweg_cuda.so, which serves from H100 and H200 GPUs
	@cmake --build --preset release -j $(JOBS) --target thalweg thalweg_cuda

cuda-test-binaries: cuda-configure ## build/release/bin/thalweg_cuda_test and _bench, to be run on a machine with a GPU
	@cmake --build --preset release -j $(JOBS) --target thalweg_cuda_test thalweg_cuda_bench

serve: build ## serve MODEL (default: SmolLM2-135M-Instruct) on HOST:PORT
ifeq ($(MODEL),)
	@tools/fetch_models.sh "$(CACHE)/models" smollm2-135m-instruct
	@exec $(BINARY) serve "$(CACHE)/models/SmolLM2-135M-Instruct.Q4_1.gguf" --host $(HOST) --port $(PORT)
else
	@exec $(BINARY) serve "$(MODEL)" --host $(HOST) --port $(PORT)
endif

test: deps ## build everything and run all tests
	@tools/fetch_test_assets.sh "$(CACHE)/test-assets"
	@cmake --preset release -DTHALWEG_TESTS=ON > build.log 2>&1 || { cat build.log; exit 1; }; rm -f build.log
	@cmake --build --preset release -j $(JOBS)
	@THALWEG_TEST_ASSETS="$(CACHE)/test-assets" ctest --preset release -j $(JOBS)

format: ## rewrite sources with clang-format
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format -i

format-check: ## fail on sources that clang-format would change
	@git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format --dry-run --Werror

layers: ## fail on includes that the layer table forbids
	@python3 tools/check_layers.py

clean: ## remove build/
	@rm -rf build
