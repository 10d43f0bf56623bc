# `make demo` and `make test` are the commands to begin with; `make help` lists the others.
.DEFAULT_GOAL := help
SHELL := /usr/bin/env bash

FUZZ_SECONDS ?= 120
RUNS ?= 100

.PHONY: help demo demo-overlay demo-ensemble demo-stream build rig test check advisories unit flaky examples release figures gallery numbers bench bench-live bench-ensembles emulate emulate-map bench-parts deb test-deb test-bare size static fuzz fuzz-short faults faults-order order-mutants parallel rejoin video crash store-clients audience image jepsen soak soak-order soak-overlay soak-stream soak-bridge python python-test python-ray python-objects convergence notebooks lab-test lab-page book tunnel dist test-dist crates

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: build ## Watch one sender and five receivers, each at its own rate
	@target/release/manyflow demo

demo-overlay: build ## Watch group messages while a link gets slow and a daemon is killed (40 s)
	@target/release/manyflow demo overlay

demo-ensemble: build ## Watch a client fetch a file from four servers over one connection, while one is killed (30 s)
	@target/release/manyflow demo ensemble

demo-stream: build ## Watch one stream of pictures at four receivers, each with the quality that its link carries (40 s)
	@target/release/manyflow demo stream

build: ## Build the release binary, target/release/manyflow
	@scripts/setup
	cargo build --release --locked -p manyflow

rig: ## Build manyflow and the program of benchmarks and long tests, target/release/manyflow-rig
	@scripts/setup
	cargo build --release --locked -p manyflow -p manyflow-rig

# One run builds nothing twice, so state for incremental builds would only cost time.
test lane-build lane-computing lane-live: export CARGO_INCREMENTAL ?= 0

# Third-party packages are installed beside the build, which often has work for one core only. Then
# there are two lanes: one computes, with a lower priority, while the other mostly waits. A recipe's
# line is one step, so that each lane takes one after the other. Python's package is built before
# the lanes, because cargo builds one thing at a time.
test: tools ## All checks and tests, which have to pass before a change lands
	@scripts/setup python
	@$(MAKE) --no-print-directory -j3 lane-build lane-packages
	scripts/python install
	@$(MAKE) --no-print-directory -j2 --output-sync=line lane-computing lane-live
	@scripts/unit report

.PHONY: lane-build lane-packages
lane-build: check
	cargo nextest run --locked --workspace --no-run
	$(BUILD_PROGRAMS)

lane-packages:
	@scripts/python packages
	@scripts/lab-test --packages

.PHONY: lane-computing lane-live
lane-computing:
	scripts/unit computing
	@nice $(MAKE) --no-print-directory -j1 fuzz-short release
	nice env PYTHON=target/python-venv/bin/python scripts/notebooks short

lane-live:
	scripts/unit live
	@$(MAKE) --no-print-directory -j1 lab-test examples python-test

# An example needs the dependencies of tests, so the documentation finds all of them as clippy left
# them. Otherwise they would be checked again, with fewer features.
DOCUMENT = cargo doc --locked --workspace --no-deps --lib --bin manyflow --bin manyflow-rig --example webrc_link

# The settings of `cargo clippy -- -D warnings` for cargo. With them, the documentation takes
# this repository's crates, too, as clippy left them. Should a release of Rust change them, they are
# checked again, and nothing else changes.
AS_CLIPPY = RUSTC_WORKSPACE_WRAPPER="$$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

check: check-text check-code ## Check format, lints, documentation, licences of dependencies, and the rules of CONTRIBUTING

.PHONY: tools check-text check-code
tools:
	@scripts/setup tests

check-text: tools
	cargo fmt --all --check
	scripts/tidy --self-test
	scripts/tidy
	scripts/size
	scripts/readme-commands --self-test
	scripts/readme-commands
	scripts/numbers --self-test
	scripts/numbers --check
	scripts/keys --check

check-code: tools
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(AS_CLIPPY) RUSTDOCFLAGS='-D warnings' $(DOCUMENT)
	cargo deny --locked check --hide-inclusion-graph bans licenses sources

advisories: ## Ask the RustSec database whether a dependency has a known vulnerability (network)
	@scripts/setup tests
	cargo deny --locked check --hide-inclusion-graph advisories

unit: ## Run unit, property, integration and documentation tests
	@scripts/setup tests
	scripts/unit

flaky: ## Run the live tests RUNS times (100) beside two busy processes, and count the failures (hours)
	@scripts/setup tests
	scripts/unit flaky $(RUNS)

lab-test: ## Test the page of `manyflow lab` and the status pages in Chromium
	@scripts/lab-test

# The whole workspace, so that dependencies have the features that tests need. Otherwise they would
# be built again.
BUILD_PROGRAMS = cargo build --locked --workspace --bins --examples

EXAMPLES = webrc_link webrc_udp three_daemons group_chat switch_two_members own_controller evaluate_own own_topology scenario_to_csv progressive_samples replicated_map

examples: ## Run the programs of examples/
	$(BUILD_PROGRAMS)
	set -e; for program in $(EXAMPLES); do echo "-- $$program"; "$${CARGO_TARGET_DIR:-target}/debug/examples/$$program"; done

# The whole workspace, as in `BUILD_PROGRAMS`. Only the crates that this file lists, and those that
# depend on them, are built again. Releases run the test in their own form.
release: ## Check that simulations give the same bytes without assertions and optimisation as in the test profile
	cargo test --locked --config .config/as-released.toml --workspace --test determinism

python: ## Install the Python package into target/python-venv, and run its example
	@scripts/setup python
	scripts/python example

python-test: ## Test the Python package in target/python-venv
	@scripts/setup python
	scripts/python test

python-ray: ## Install Ray, and test sweeps on it (a minute)
	@scripts/setup python
	scripts/python ray

python-objects: ## Install s3fs, and test sweeps in object stores (a minute)
	@scripts/setup python
	scripts/python objects

convergence: ## Run SIM from random starts, and compare with the best menu (docs/convergence.md; some minutes)
	cargo run --release --locked -p manyflow-layered --example convergence -- $(RUNS)

notebooks: ## Execute the notebooks with whole runs (some minutes)
	@scripts/setup python
	scripts/notebooks whole

figures: build ## Run the papers' figures in full, into results/ (some minutes)
	@target/release/manyflow figure --all

gallery: build ## Regenerate the plots of docs/figures from whole runs
	@scripts/gallery

numbers: rig ## Refresh the numbers of the documents: PARTS, or all figures of less than two minutes (`scripts/numbers` lists parts)
	scripts/numbers $(or $(PARTS),--cheap)

deb: ## Build a Debian package with man pages, completions and units, in target/package
	@scripts/setup package
	@scripts/package deb

test-deb: ## Build the package, install it in a clean Debian, run it, remove it (root, ten minutes)
	@scripts/setup package
	scripts/test-deb "$$(scripts/package deb)"

test-bare: ## Run `make demo` and `make test` in a clean Debian without the tools of scripts/setup (root, half an hour)
	@scripts/setup bare
	scripts/test-bare

size: ## Print the lines and bytes of the program as packages have it, and fail beyond the limits
	@scripts/setup
	scripts/size "$$(scripts/package program)"

static: ## Build a program without shared libraries, target/x86_64-unknown-linux-musl/dist/manyflow
	@scripts/setup static
	scripts/package static x86_64-unknown-linux-musl

dist: ## Build everything that a release has, in a folder of target/dist (25 minutes)
	@scripts/setup dist
	scripts/dist $(REF)

test-dist: ## Run the last release of target/dist in a clean Debian, and its image by crun (root, some minutes)
	@scripts/setup image
	scripts/test-dist "$$(ls --directory --sort=time target/dist/manyflow-* | head -1)"

crates: ## Package all crates in the order of their dependencies, without publishing
	scripts/crates --dry-run

lab-page: ## Build the lab as one HTML file that needs no server, target/lab.html, and test it in Chromium
	@scripts/lab-page

book: build ## Build the documentation as a book, target/book/html/index.html
	@scripts/setup book
	scripts/book check
	scripts/book build target/release/manyflow

bench: rig ## Compare the simulator's speed with ns-2, if it is installed
	@target/release/manyflow-rig bench sim

bench-live: rig ## Compare live transfers with UFTP, if it is installed, between network namespaces (root, ten minutes)
	@target/release/manyflow-rig bench live --runs 3; target/release/manyflow-rig bench live --receivers 4 --runs 3; target/release/manyflow-rig bench live --multicast --runs 3; target/release/manyflow-rig bench live --relays --receivers 4 --size 100MB --runs 3; target/release/manyflow-rig bench heterogeneity --runs 3

bench-ensembles: rig ## Compare the switch and the gateway with HAProxy, and the store with cp, on this machine (five minutes)
	@target/release/manyflow-rig bench switch; scripts/gateway-nginx; scripts/store-speed

AGREE = target/release/manyflow emulate --seed 1 --agree

emulate: rig ## Measure the emulator, and compare emulated scenarios with simulated ones (root, fourteen minutes)
	target/release/manyflow-rig bench emulator
	set -e; for cell in 0 1 2 3 4 5; do $(AGREE) x-kernel --cell $$cell --for 30s; done
	$(AGREE) webrc-4 --cell 0 --for 30s
	$(AGREE) webrc-6 --cell 0 --for 30s
	$(AGREE) webrc-9 --cell 0 --for 60s
	$(AGREE) tcp-2 --cell 1 --for 60s
	$(AGREE) cb-4 --cell 0 --for 30s
	$(AGREE) sim-2 --cell 0 --for 60s
	$(AGREE) sim-3b --cell 0 --for 60s
	$(AGREE) sim-4b --cell 1 --for 80s --set 'parameters.shared_from="30 s"' --set 'parameters.alone_from="30 s"'
	$(AGREE) x-hetero --cell 0 --for 30s --set sessions.webrc.webrc.delay-check=true

emulate-map: build ## Run five protocols beside the kernel's TCP, over rates, delays and queues (root, an hour, quiet machine)
	target/release/manyflow emulate x-kernel-map

bench-parts: ## Measure the speed of links, protocols, codecs and the engine (half a minute)
	cargo bench --locked -p manyflow-netsim -p manyflow-scenario -p manyflow-object -p manyflow-files -p manyflow-order --bench parts --bench protocols --bench orderer

tunnel: build ## Pass git, HTTP/2, WebSockets and PostgreSQL through TCP tunnels while members are killed (a minute)
	scripts/tunnel

faults: ## Test Anypoint's connections, overlays and the chunk store with a thousand random sequences of faults each
	MANYFLOW_SEEDS=1000 cargo test --locked --release --config 'profile.release.package."*".opt-level=0' -p manyflow-netsim --test suite
	MANYFLOW_SEEDS=1000 cargo test --locked -p manyflow-anypoint --test suite switch::members_join

faults-order: ## Test ordered groups with a million random sequences of faults, on all processors (hours)
	@scripts/faults-order

parallel: ## Compare 10,000 random networks on 1 to 4 threads, event by event (some minutes)
	MANYFLOW_SEEDS=10000 cargo test --locked -p manyflow-netsim --lib parallel:: -- --nocapture

order-mutants: ## Check that the faults of ordered groups notice wrong variants of the protocol
	@scripts/order-mutants

rejoin: ## Let receivers of streams leave and join again, with a hundred seeds (a minute)
	MANYFLOW_SEEDS=100 cargo test --locked -p manyflow-layered --test suite relay::rejoin -- --nocapture

video: ## Decode every prefix of several encodings with ffmpeg (ten minutes)
	cargo build --locked -p manyflow-video --example prefixes
	scripts/stream-video prefixes

crash: ## Kill receivers and senders of files, members and switches of a store, and bridges, at random moments (twenty minutes)
	MANYFLOW_KILLS=50 cargo test --locked -p manyflow --test suite crash:: -- --nocapture
	MANYFLOW_KILLS=50 cargo test --locked -p manyflow --test suite store::faults -- --nocapture
	MANYFLOW_KILLS=50 cargo test --locked -p manyflow --test suite store::repair_faults -- --nocapture
	MANYFLOW_KILLS=50 cargo test --locked -p manyflow --test suite bridge::each -- --nocapture

store-clients: build ## Let rclone and restic copy, list and check files through the S3 surface of a store (a minute)
	@scripts/store-s3

audience: ## Let 64 receivers be killed, started again, slow or full, and check the table of their sender (a minute)
	MANYFLOW_RECEIVERS=64 cargo test --locked -p manyflow --test suite audience:: -- --nocapture

image: ## Send a device of 2 GiB to three loop devices, one of whose receivers is killed (root, two minutes)
	MANYFLOW_IMAGE_BYTES=2147483648 MANYFLOW_IMAGE_RATE=100Mbit/s cargo test --locked -p manyflow --test suite imaging::three_devices -- --nocapture

jepsen: ## Let daemons fail a hundred times under a replicated map, and check that it is linearizable (three minutes)
	MANYFLOW_FAULTS=100 cargo test --locked -p manyflow --test suite replicated_map -- --nocapture

soak: rig ## Transfer files for half an hour on changing links, with crashes
	@target/release/manyflow-rig soak files --for 30min

soak-order: rig ## Kill, stop and cut off daemons of ordered groups for half an hour, and check the traces of their members
	@target/release/manyflow-rig soak order --for 30min

soak-overlay: rig ## Send group messages for half an hour, while daemons crash and links break
	@target/release/manyflow-rig soak overlay --for 30min

soak-stream: rig ## Send a stream for half an hour, while receivers and relays come and go, and links change
	@target/release/manyflow-rig soak stream --for 30min

soak-bridge: ## Kill bridges and a nats-server for half an hour; each message of a JetStream stream is stored once
	MANYFLOW_KILLS=8000 cargo test --locked -p manyflow --test suite bridge::each -- --nocapture

fuzz-short: ## Run each fuzz target on some thousand inputs, with stable Rust
	@scripts/fuzz short

fuzz: ## Run each fuzz target for FUZZ_SECONDS (120) under libFuzzer, with nightly Rust
	@scripts/fuzz $(FUZZ_SECONDS)
