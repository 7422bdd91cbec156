# Shared by the scripts beside it, which source it: where the project is, and steps that say what they do.
# The output of a step goes to a log under build/log/ and is shown if the step fails.

set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
log_folder=$root/build/log
jobs=$(nproc)

say() {
  printf '==> %s\n' "$*"
}

# The comment at the top of the script is its help text.
print_usage() {
  sed -n '2,/^$/ s/^# \{0,1\}//p' "$0"
}

# For a wrong command line.
refuse() {
  printf '%s: %s; --help shows how it is used\n' "${0##*/}" "$1" >&2
  exit 2
}

# On a terminal, shows the "[12/40]" of ninja's lines as a counter that stays in one place.
show_counter() {
  [ -t 1 ] || exec cat >/dev/null
  local counter rest
  while read -r counter rest; do
    if [[ $counter == \[*/*\] ]]; then printf '\r    %s ' "$counter"; fi
  done
  printf '\r\033[K'
}

# logged NAME COMMAND...: runs the command, its output in build/log/NAME.log. Ends the script if it fails.
logged() {
  local log=$log_folder/$1.log
  shift
  mkdir -p "$log_folder"
  if ! "$@" </dev/null 2>&1 | tee "$log" | show_counter; then
    printf '\nFAILED: %s\nThe end of %s:\n\n' "$*" "$log" >&2
    tail -n 40 "$log" >&2
    return 1
  fi
}

# configure PRESET [CMAKE OPTION...]
configure() {
  local preset=$1
  shift
  say "Configuring (preset $preset)"
  logged "configure-$preset" cmake -S "$root" --preset "$preset" "$@"
}

# build PRESET WHAT [TARGET...]: without a target, everything. WHAT is for the reader.
build() {
  local preset=$1 what=$2 hint=
  shift 2
  [ -e "$root/build/$preset/.ninja_log" ] || hint=', which takes minutes the first time'
  say "Building $what$hint"
  logged "build-$preset" cmake --build "$root/build/$preset" --parallel "$jobs" ${1:+--target "$@"}
}
