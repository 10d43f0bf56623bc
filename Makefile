# The two commands of a newcomer are `make demo` and `make test`; `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /usr/bin/env bash

FUZZ_SECONDS ?= 120

.PHONY: help demo build test check unit examples release figures gallery bench bench-parts fuzz fuzz-short faults

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: build ## Watch one sender and five receivers, each at its own rate
	@target/release/manyflow demo

build: ## Build the release binary, target/release/manyflow
	@scripts/setup
	cargo build --release --locked -p manyflow

test: check unit examples release fuzz-short ## All checks and tests: what has to pass before a change lands

# `scripts/tidy` without an option fails on what `--list` counts.
check: ## Format, lints with warnings denied, licences of dependencies, and the rules of CONTRIBUTING
	@scripts/setup tests
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo deny --locked check --hide-inclusion-graph bans licenses sources
	scripts/tidy --self-test
	scripts/tidy --list

unit: ## Unit, property, integration and documentation tests
	@scripts/setup tests
	cargo test --locked --workspace

EXAMPLES = webrc_link webrc_udp three_daemons switch_two_members own_controller own_topology scenario_to_csv

examples: ## Run the small programs of examples/
	cargo build --locked -p manyflow-examples --examples
	set -e; for program in $(EXAMPLES); do echo "-- $$program"; cargo run --locked -q -p manyflow-examples --example $$program; done

# Dependencies stay unoptimised here: that halves the time to build them.
release: ## Simulations give the same bytes in release as in the test profile
	cargo test --locked --release --config 'profile.release.package."*".opt-level=0' -p manyflow-netsim --test determinism

figures: build ## The papers' figures, whole, into results/ (some minutes)
	@target/release/manyflow figure --all

gallery: build ## The plots of docs/figures, from whole runs
	@scripts/gallery

bench: build ## The simulator's speed, beside ns-2 where it is installed
	@target/release/manyflow bench sim

bench-parts: ## The parts' speed: links, protocols, codecs, the engine (half a minute)
	cargo bench --locked -p manyflow-netsim -p manyflow-object --bench parts --bench protocols

faults: ## Anypoint's connections and overlays under a thousand random sequences of faults each
	MANYFLOW_SEEDS=1000 cargo test --locked --release --config 'profile.release.package."*".opt-level=0' -p manyflow-netsim --test anypoint_faults --test overlay_faults

fuzz-short: ## Each decoder's fuzz target on some thousand inputs, with stable Rust
	@scripts/fuzz short

fuzz: ## Each decoder's fuzz target for FUZZ_SECONDS (120) under libFuzzer, with nightly Rust
	@scripts/fuzz $(FUZZ_SECONDS)
