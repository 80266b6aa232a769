# A bare `make` lists the targets below that carry a `## ` comment.

CARGO ?= cargo
export CARGO

# Seeds of one swarm, and seconds spent on each fuzz target.
SEEDS ?= 10000
FUZZ_SECONDS ?= 60

# Debian packages, installed when missing: for all targets, and per target. Of names joined by / one is enough. Packages after
# --if-possible are optional: sound, and windows on X11.
PACKAGES :=
PACKAGES_demo := --if-possible libasound2t64/libasound2 libxkbcommon-x11-0
PACKAGES_test := gcc cc65 libretro-nestopia libretro-mgba libretro-gambatte libretro-beetle-pce-fast \
	libretro-bsnes-mercury-performance
PACKAGES_bench := valgrind
PACKAGES_fuzz := g++

# Use each crate's own clippy.toml, not one from the environment.
unexport CLIPPY_CONF_DIR

.DEFAULT_GOAL := help
.PHONY: help demo test lab swarm mazes motions mirrors world spectators latejoin tables bench fuzz fmt clean setup setup-demo setup-test setup-bench setup-fuzz
MAKEFLAGS += --no-builtin-rules

help:
	@echo 'usage: make TARGET'
	@echo
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS="$$(printf '\t')" read -r target text; do printf '  %-11s %s\n' "$$target" "$$text"; done

demo: setup-demo ## run the demo: two sites share a game over a bad link
	@$(CARGO) run --release -q -p coplay-app -- demo

test: setup-test ## run all checks: format, lints, docs, tests, games, purity, structure, language
	@echo '==> format'
	@$(CARGO) fmt --all --check
	@echo '==> lints'
	@$(CARGO) clippy -q --workspace --all-targets -- -D warnings
	@echo '==> docs'
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc -q --workspace --no-deps
	@echo '==> tests'
	@scripts/test-modules
	@$(CARGO) test -q --workspace
	@echo '==> games'
	@games/tennis/check
	@echo '==> purity'
	@scripts/walls
	@echo '==> structure'
	@$(CARGO) run -q -p coplay-structure
	@echo '==> language'
	@scripts/prose
	@echo 'all checks passed'

lab: setup ## repeat the experiments of five papers and write target/lab/report.html
	@$(CARGO) run --release -q -p coplay-lab-app -- report --out target/lab

swarm: setup ## run SEEDS (10000) random sessions with faults and check each of them
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --seeds $(SEEDS)

mazes: setup ## run SEEDS random mazes without a server, with faults, and check each of them
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --maze --seeds $(SEEDS)

mirrors: setup ## run SEEDS random worlds of mirrored servers, with faults, and check each of them
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --mirror --seeds $(SEEDS)

motions: setup ## run SEEDS random servers of moving objects, with faults, and check each of them
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --motion --seeds $(SEEDS)

world: setup ## build the world server, target/release/coplay-world, and coplay
	@$(CARGO) build --release -p coplay-app -p coplay-world-app --bins

spectators: setup ## let 10,000 spectators watch one game and compare the players' packets
	@$(CARGO) run --release -q -p coplay-sim --bin spectator_scale
	@$(CARGO) test --release -q -p coplay-bench --test spectator_feed_allocations -- --nocapture | grep 'per spectator'

latejoin: setup ## measure how long a late join takes and how it affects the players
	@$(CARGO) run --release -q -p coplay-sim --bin late_join

tables: setup ## print tables of pacing, prediction and traffic
	@$(CARGO) run --release -q -p coplay-sim --bin tables

bench: setup-bench ## measure the cost of a frame, compared with ggrs
	@$(CARGO) run --release -p coplay-bench

fuzz: setup-fuzz ## fuzz the decoders and engines for FUZZ_SECONDS (60) per target
	@scripts/fuzz $(FUZZ_SECONDS)

fmt: setup ## format the sources
	@$(CARGO) fmt --all

clean: setup ## remove all build output
	@$(CARGO) clean -q

setup setup-demo setup-test setup-bench setup-fuzz:
	@scripts/setup $(PACKAGES) $(PACKAGES_$(@:setup-%=%))
