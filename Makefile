# A bare `make` lists what there is to do: the lines below that carry a `## ` comment.

CARGO ?= cargo
export CARGO

# Seeds of one swarm, and seconds spent on each fuzz target.
SEEDS ?= 10000
FUZZ_SECONDS ?= 60

# Debian packages that are installed when missing: for everything, and for one target more.
# Of several with / in between one is enough. What follows --if-possible is only missed: here sound, and windows on X11.
PACKAGES :=
PACKAGES_demo := --if-possible libasound2t64/libasound2 libxkbcommon-x11-0
PACKAGES_test := gcc cc65 libretro-nestopia libretro-mgba libretro-gambatte libretro-beetle-pce-fast \
	libretro-bsnes-mercury-performance
PACKAGES_bench := valgrind
PACKAGES_fuzz := g++

# Each crate's own clippy.toml counts, not one from elsewhere.
unexport CLIPPY_CONF_DIR

.DEFAULT_GOAL := help
.PHONY: help demo test lab swarm mazes motions mirrors world crowd latecomer tables bench fuzz fmt clean setup setup-demo setup-test setup-bench setup-fuzz
MAKEFLAGS += --no-builtin-rules

help:
	@echo 'usage: make TARGET'
	@echo
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS="$$(printf '\t')" read -r target what; do printf '  %-9s %s\n' "$$target" "$$what"; done

demo: setup-demo ## see two sites share a game over a bad link, and turn its dials
	@$(CARGO) run --release -q -p coplay-app -- demo

test: setup-test ## check everything: format, lints, docs, tests, walls
	@echo '==> format'
	@$(CARGO) fmt --all --check
	@echo '==> lints'
	@$(CARGO) clippy -q --workspace --all-targets -- -D warnings
	@echo '==> docs'
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc -q --workspace --no-deps
	@echo '==> tests'
	@$(CARGO) test -q --workspace
	@echo '==> games'
	@games/tennis/check
	@echo '==> walls'
	@scripts/walls
	@echo 'all is well'

lab: setup ## do the papers' experiments, and make one page of them: target/lab/report.html
	@$(CARGO) run --release -q -p coplay-app -- lab report --out target/lab

swarm: setup ## run SEEDS (10000) random sessions with faults, and check each
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --seeds $(SEEDS)

mazes: setup ## the same for mazes without a server
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --maze --seeds $(SEEDS)

mirrors: setup ## the same for servers that mirror each other
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --mirror --seeds $(SEEDS)

motions: setup ## the same for moving objects with a server
	@$(CARGO) run --release -p coplay-sim --bin swarm -- --motion --seeds $(SEEDS)

world: setup ## build the servers of a world: target/release/coplay-world, for `coplay world`
	@$(CARGO) build --release -p coplay-app -p coplay-world-app --bins

crowd: setup ## let 10,000 watch one game, and prove that the players cannot tell
	@$(CARGO) run --release -q -p coplay-sim --bin crowd
	@$(CARGO) test --release -q -p coplay-bench --test spectator_feed_allocations -- --nocapture | grep 'per watcher'

latecomer: setup ## let somebody come late to a game, and show what the players notice
	@$(CARGO) run --release -q -p coplay-sim --bin latecomer

tables: setup ## print the tables: pacing beside the papers', guessing, bytes
	@$(CARGO) run --release -q -p coplay-sim --bin tables

bench: setup-bench ## measure what a frame costs
	@$(CARGO) run --release -p coplay-bench

fuzz: setup-fuzz ## throw bytes at the engines, FUZZ_SECONDS (60) for each target
	@scripts/fuzz $(FUZZ_SECONDS)

fmt: setup ## format the sources
	@$(CARGO) fmt --all

clean: setup ## remove everything that was built
	@$(CARGO) clean -q

setup setup-demo setup-test setup-bench setup-fuzz:
	@scripts/setup $(PACKAGES) $(PACKAGES_$(@:setup-%=%))
