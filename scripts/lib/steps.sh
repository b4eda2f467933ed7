# Named steps with their times, a summary at the end, loud skips, retries. Sourced by the scripts beside this folder.
# shellcheck shell=bash

current_step=''
step_started=0
summary=()
skipped=()
drafts=()

# Runs a command as a step with a name. A failure ends the script, and `finish` reports it.
step() {
  current_step=$1
  step_started=$SECONDS
  shift
  printf '\n=== %s\n' "$current_step"
  "$@"
  note_step 'ok'
  current_step=''
}

note_step() {
  local line
  line=$(printf '%-7s %4d s  %s' "$1" "$((SECONDS - step_started))" "$current_step")
  summary+=("$line")
  printf '=== %s\n' "$line"
}

# Whatever happened: leave no half-installed part behind, and say how it went.
finish() {
  local status=$?
  ((${#drafts[@]} == 0)) || rm -rf -- "${drafts[@]}"
  [[ -z $current_step ]] || note_step 'FAILED'
  printf '\n=== summary\n'
  ((${#summary[@]} == 0)) || printf '%s\n' "${summary[@]}"
  ((${#skipped[@]} == 0)) || printf 'SKIPPED: %s\n' "${skipped[@]}"
  printf 'total %d s, %s\n' "$SECONDS" "$([[ $status == 0 ]] && echo passed || echo "failed ($status)")"
}

# Says loudly what is not tested, why, and what would help. In CI, that is a failure.
skip() {
  local what=$1 why=$2 help=$3
  skipped+=("$what: $why; $help")
  printf '\n**********\nSKIPPED: %s: %s; %s\n**********\n\n' "$what" "$why" "$help"
  [[ ${CI:-} != true ]] || die 'with CI=true, nothing may be skipped'
}

die() {
  echo "error: $*" >&2
  exit 1
}

# Tries a command that needs the network three times.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return
    ((attempt == 3)) || { echo "attempt $attempt failed: $*" >&2 && sleep $((attempt * 5)); }
  done
  return 1
}
