# ci/stages.sh - sourced by ci/test, ci/long and ci/gpu: runs functions stage_NAME one after the other.
#
# Each prints its seconds; a failed one shows the end of its log and the others still run, but
# for `setup` and `build`, without which none makes sense.  One that ends with `skip WHY` counts as
# neither.  Logs: build/ci/NAME.log.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
root=$PWD
logs=$root/build/ci
mkdir -p "$logs"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
passed=0 failed=0 skipped=0 failures=()

in_time() { timeout --kill-after=20 "$@"; }
tests_of() { in_time 900 ctest --test-dir "$1" -j4 --output-on-failure --no-tests=error "${@:2}"; }

# The longest tests, left out of ci/test's sanitizers and MPICH (which its unit stage runs plainly) and given to ci/long's sanitizers.
long_train='train_(cuts|bits|fault|refuse|units|zero|scale|policies|spans|offload)'
long_asan="($long_train|train|tasks_overlap|suite_files|run|job|report|frameworks|export|matmul_wide|lateness_chance)"

tsan_settings=suppressions=$root/ci/tsan.supp:second_deadlock_stack=1:history_size=7 # as cmake/dependencies.cmake gives the tests

# build_rooms FOLDER ROOM... -- CMAKE-ARGUMENT...: the trainer and the tests of these rooms of reference/, and no more.
build_rooms() {
  local folder=$1 rooms=() tests; shift
  while [ "$1" != -- ]; do rooms+=("reference/$1"); shift; done
  shift
  mapfile -t tests < <(find "${rooms[@]}" -maxdepth 1 -name '*_test.c' ! -name '*cuda*' ! -name '*alone*' -printf '%f\n' | sed 's/\.c$//' | sort)
  in_time 60 cmake -B "$folder" $(command -v ninja >/dev/null && echo -G Ninja) "$@" &&
    in_time 600 cmake --build "$folder" -j2 --target shardmark-train "${tests[@]}"
}

skip() { echo "skipped: $*"; return 77; }

# host_run SECONDS asan-or-nothing ARGS: the CUDA device on the CPU, with as many devices as a run asks for, one a rank.
host_run() { CUDA_HOST_DEVICES=8 in_time "$1" "build-cuda-host${2:+-$2}/shardmark" run "${@:3}"; }

# used_s: seconds of processor that what this shell waited for has used.  Not in a subshell, which has waited for nothing.
take_used() {
  times >"$logs/times"
  used_s=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$logs/times")
}

run_stage() {
  local name=$1 began=$SECONDS used status
  take_used; used=$used_s
  "stage_$name" >"$logs/$name.log" 2>&1 </dev/null
  status=$?
  take_used
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf '%-12s passed  %5d s %6d s of processor\n' "$name" $((SECONDS - began)) $((used_s - used))
  elif [ "$status" -eq 77 ]; then
    skipped=$((skipped + 1))
    printf '%-12s %s\n' "$name" "$(tail -n 1 "$logs/$name.log")"
  else
    failed=$((failed + 1)); failures+=("$name")
    printf '%-12s FAILED  %5d s  (status %d, %s)\n' "$name" $((SECONDS - began)) "$status" "${logs#"$root"/}/$name.log"
    tail -n 60 "$logs/$name.log" | sed 's/^/    /'
  fi
}

# The stages named, or else all of $1 (blank-separated); prints the score last.
run_stages() {
  local all=$1 stage; shift
  local stages=("$@")
  [ ${#stages[@]} -gt 0 ] || read -ra stages <<<"$all"
  for stage in "${stages[@]}"; do
    declare -F "stage_$stage" >/dev/null || { echo "$0: no stage '$stage'; valid: $all"; exit 2; }
  done
  for stage in "${stages[@]}"; do
    run_stage "$stage"
    case $stage in setup | build) [ "$failed" -eq 0 ] || break ;; esac
  done
  echo "$SECONDS s in all${failures[*]:+; failed: ${failures[*]}}"
  if [ "$skipped" -eq 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
  [ "$failed" -eq 0 ]
}
