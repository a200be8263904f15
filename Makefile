# Everything a person or CI does here. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help check fmt clippy doc tidy test bench demo sim kill ci

# For the long runs by hand: `make sim` and `make kill`. `make test` plays 200 seeds and 300 kills.
SEEDS ?= 100000
MINUTES ?= 60

help: ## Lists the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

check: fmt clippy doc tidy ## Format, lints, documentation and the tidy rules, all strict

fmt:
	cargo fmt --all --check

# Twice: what ships is checked without what only tests switch on.
clippy:
	cargo clippy --workspace -- -D warnings
	cargo clippy --workspace --all-targets --all-features -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

tidy:
	cargo test --quiet -p ash-engine --test tidy

test: ## Every test (nextest where it is installed, else cargo test)
	@if command -v cargo-nextest >/dev/null 2>&1; then \
	  cargo nextest run --workspace --no-fail-fast; \
	else \
	  cargo test --workspace --no-fail-fast; \
	fi

bench: ## Benchmarks against bare baselines, as ratios taken in one run
	cargo build --release --quiet -p ash-bridge
	cargo run --release --quiet -p ash-bench -- $(PART)

demo: ## Kills a writer with -9 ten times and tells what survived
	@cargo build --release --quiet -p ash-store --bin ash-kill-test
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  ./target/release/ash-kill-test run "$$dir" --kills 10

sim: ## Plays simulated histories: SEEDS=n many, or SEED=n one
	$(if $(SEED),ASH_SIM_SEED=$(SEED),ASH_SIM_SEEDS=$(SEEDS)) \
	  cargo test --release -p ash-engine --test it every_seed -- --nocapture

kill: ## The kill test for MINUTES=n
	cargo build --release --quiet -p ash-store --bin ash-kill-test
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  ./target/release/ash-kill-test run "$$dir" --minutes $(MINUTES)

ci: check test ## Exactly what CI runs
