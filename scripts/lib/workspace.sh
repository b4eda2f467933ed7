# What the scripts do with cargo and the workspace. Sourced by the scripts beside this folder.
# shellcheck shell=bash

# How many GB a build from nothing takes.
least_room=8

# What is left out by default and tested all the same.
all_features=mcp-aggregator/qdrant

# start ARGUMENT...
# Called first by a script with steps, with the script's own arguments.
start() {
  restart_with_interrupts "$@"
  require_cargo
  warn_of_little_room
  # CI builds once, and incremental files take more room than all the rest.
  [[ ${CI:-} != true ]] || export CARGO_INCREMENTAL=0
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

require_cargo() {
  command -v cargo >/dev/null || die 'cargo was not found
hint: install Rust with rustup (https://rustup.rs), then open a new shell'
}

# A program in the background of a script ignores SIGINT, and so does everything it starts; but some tests send SIGINT to
# programs that do not handle it. Restarts the script with the default handling, where `env` can do that.
restart_with_interrupts() {
  local ignored
  ignored=$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status 2>/dev/null) || return 0
  ((16#${ignored:-0} & 2)) || return 0
  env --default-signal=INT true 2>/dev/null || return 0
  exec env --default-signal=INT bash "$PWD/scripts/$(basename "$0")" "$@"
}

# A full disk fails in whatever happens to write at that moment.
warn_of_little_room() {
  local free
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
  ((free >= least_room)) || echo "warning: $free GB are free here; the tests and their programs take up to $least_room GB" >&2
}

# The programs that tests and conformance start, and the tests. Both at once: with `--bins` alone, cargo builds the
# dependencies with fewer features, and once more for the tests.
build_programs() {
  cargo build --workspace --all-targets --locked --features "$all_features"
}

# The fuzz corpora are replayed by ordinary tests of the crates.
# Most tests wait for processes rather than compute: two for each core keep it busy.
run_tests() {
  RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(getconf _NPROCESSORS_ONLN) * 2))} \
    MCP_TEST_BIN_DIR="$(target_folder)/debug" \
    cargo test --workspace --locked --features "$all_features" --no-fail-fast
}

# The official suite, directly against the fixture server and through us; prints a table.
run_conformance() {
  if [[ ! -x $MCP_TEST_PARTS/npm/bin/node ]]; then
    skip 'the conformance suite' 'it comes from npm, which is missing' "install Node $least_node or newer, with npm"
    return
  fi
  local programs
  programs=$(target_folder)/debug
  MCP_TEST_BIN_DIR=$programs "$programs/conformance"
}

target_folder() {
  cargo metadata --no-deps --format-version 1 --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
