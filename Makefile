# Everything a person or CI does here. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help check fmt clippy doc tidy docs test test-rust test-quota bench bench-snapshot bench-compare programs sdk test-sdk demo sim kill crashes cycles fuzz fuzz-briefly schemathesis ci

# For the long runs by hand: `make sim` and `make kill`. `make test` plays 200 seeds and 300 kills.
SEEDS ?= 100000
MINUTES ?= 60

TARGET_DIR = cargo metadata --no-deps --format-version 1 | \
  python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 17

check: fmt clippy doc tidy ## Format, lints, documentation and the tidy rules, all strict

fmt:
	cargo fmt --all --check

# What ships is checked without what only tests switch on, and what is fuzzed without what it does not need.
clippy:
	cargo clippy --workspace -- -D warnings
	cargo clippy --package ash-snapshot --no-default-features -- -D warnings
	cargo clippy --workspace --all-targets --all-features -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

tidy:
	cargo test --quiet -p ash-engine --test tidy

docs: ## Writes the parts of the documents that are made from code
	UPDATE_DOCS=1 cargo test --quiet -p ash-server --test it -- the_page_about_settings_is \
	  the_openapi_document_in_the_repository_is the_api_reference_is the_cli_reference_is

test: fuzz-briefly test-rust test-sdk ## Every test: of the server, and of its clients

test-rust: ## The tests of the server (nextest where it is installed, else cargo test)
	@if command -v cargo-nextest >/dev/null 2>&1; then \
	  cargo nextest run --workspace --no-fail-fast; \
	else \
	  cargo test --workspace --no-fail-fast; \
	fi

# As the tests build them, so that nothing is built twice. ASH_TEST_BIN names a directory that has them already.
programs:
	@test -n "$$ASH_TEST_BIN" || cargo test --quiet --workspace --no-run

test-quota: ## Disk limits by project quotas, in DIR=d on ext4 or xfs mounted with prjquota, as root
	@test -n "$(DIR)" || { echo 'say where: make test-quota DIR=/srv/quota'; exit 2; }
	ASH_TEST_QUOTA_DIR="$(abspath $(DIR))" cargo test -p ash-engine --lib quota -- --nocapture

bench: ## Benchmarks against bare baselines, as ratios taken in one run
	cargo build --release --quiet -p ash-bridge -p ash-server
	cargo run --release --quiet -p ash-bench -- $(PART)

# PART is small, large, memory or files; it takes some GB below DIR while it runs.
bench-snapshot: ## Snapshots against a bare scan, cp, tar and restic, in one run
	cargo run --release --quiet -p ash-bench-snapshot -- $(or $(DIR),.) "$(PART)" $(ROUNDS)

# BASE and KEY: a server that runs, and its key. ROUNDS=n, LARGE=1 for 500 MB, OURS and OURS_KEY for one of ours that runs.
bench-compare: ## The same work against this server and the one at BASE=url with KEY=key, side by side
	cargo build --release --quiet -p ash-bridge -p ash-server
	@KEY="$(KEY)" python3 benches/compare/compare.py "$$($(TARGET_DIR))/release" $(if $(BASE),--base "$(BASE)") \
	  $(if $(OURS),--ours "$(OURS)" --ours-key "$(OURS_KEY)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(LARGE),--large)

# The directory of the executables comes from cargo: it can be elsewhere than in ./target.
demo: ## A conversation that survives kill -9 of server and agent, and the loss of its files and of its machine
	@cargo build --quiet -p ash-server -p ash-bridge
	@python3 examples/demo/demo.py "$$($(TARGET_DIR))/debug"

sim: ## Plays simulated histories: SEEDS=n many, or SEED=n one
	$(if $(SEED),ASH_SIM_SEED=$(SEED),ASH_SIM_SEEDS=$(SEEDS)) \
	  cargo test --release -p ash-engine --test it every_seed -- --nocapture

kill: ## The kill test for MINUTES=n
	cargo build --release --quiet -p ash-store --bin ash-kill-test
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  ./target/release/ash-kill-test run "$$dir" --minutes $(MINUTES)

crashes: ## Kills a server with -9 at every step of everything that is done with a session
	ASH_TEST_EVERY_STEP=1 cargo test -p ash-server --test it crashes:: -- --nocapture

cycles: ## Pauses and resumes one session CYCLES=n times (ten thousand), and compares its files byte for byte
	ASH_TEST_CYCLES=$(or $(CYCLES),10000) cargo test -p ash-server --test it cycles:: -- --nocapture

# What cargo-fuzz would set; the pinned compiler has it behind a switch.
FUZZ_FLAGS = --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Ccodegen-units=1 -Cdebug-assertions
SECONDS ?= 60

schemathesis: ## Sends the server all that its OpenAPI document allows, for SECONDS=n
	ASH_SCHEMATHESIS_SECONDS=$(SECONDS) ASH_SCHEMATHESIS_SEED=$(or $(SEED),$(shell date +%s)) \
	  cargo test -p ash-server --test it schemathesis_finds -- --nocapture

# Seeds are kept as text. What the fuzzer finds stays below target/.
fuzz: ## Throws bytes at the decoders for SECONDS=n each (needs a C++ compiler)
	$(call fuzz,protocol,decoder)
	$(call fuzz,snapshot,manifest)
	$(call fuzz,snapshot,pack)

fuzz-briefly:
	@if command -v c++ >/dev/null 2>&1; then $(MAKE) --no-print-directory fuzz SECONDS=10; \
	else echo "there is no C++ compiler: the corpus is replayed, and nothing is fuzzed"; fi

define fuzz
	mkdir -p target/fuzz/corpus/$(2)
	python3 -c 'import pathlib, sys; [(pathlib.Path(sys.argv[2]) / seed.stem).write_bytes( \
	  bytes.fromhex(seed.read_text())) for seed in pathlib.Path(sys.argv[1]).glob("*.hex")]' \
	  crates/$(1)/fuzz/corpus/$(2) target/fuzz/corpus/$(2)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="$(FUZZ_FLAGS)" cargo run --quiet --release \
	  --manifest-path crates/$(1)/fuzz/Cargo.toml --target-dir target/fuzz \
	  --target $$(rustc -vV | sed -n 's/host: //p') --bin $(2) -- \
	  -max_total_time=$(SECONDS) -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
	  -artifact_prefix=target/fuzz/$(2)- target/fuzz/corpus/$(2)
endef

include sdk/python/targets.mk sdk/typescript/targets.mk

sdk: sdk-python-schema sdk-typescript-schema ## Writes the types of the clients from the OpenAPI document

test-sdk: test-sdk-python test-sdk-typescript compat ## The clients, ours and the original's, against a real server

ci: check test ## Exactly what CI runs
