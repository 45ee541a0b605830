#!/bin/sh
# Fill the benchmarks with what results/train.sh trained, and write the rows of the tables:
#   results/fill.sh BENCH ROWS [λ …]
#
# Interrupted, it goes on where it was; what fails does not stop the others, and the exit status is 1. EVALUATE may hold
# more options.
set -u
if [ $# -lt 2 ]; then
    echo "results/fill.sh BENCH ROWS [λ …]: got $# of them; say where the benchmarks are and where rows go" >&2
    exit 2
fi
failed=0
bench=$1 rows=$2
shift 2
mkdir -p "$rows" || exit

evaluate() { # folder, name of the rows, ways, further options
    folder=$1 name=$2 ways=$3
    shift 3
    "${PYTHON:-python}" -m ddot evaluate "$folder" --bench "$bench" --output "$rows/$name.jsonl" --methods "$ways" \
        --tasks free ${EVALUATE:-} "$@" >/dev/null || failed=1
}
programs() { # method, ways: programs alone
    evaluate "runs/smollm2_$1" "$1-code" "$2" --datasets code-block --tasks located,free
}
everywhere() { # method, ways: all texts and programs
    evaluate "runs/smollm2_$1" "$1" "$2"
    programs "$1" "$2"
}
texts() { # method, further ways: texts alone
    evaluate "runs/smollm2_$1" "$1-ways" "$2"
}

# Three at a time: more of them only wait for each other. Stopped, they stop.
begun=
trap 'for lane in $begun; do children=$(pgrep -P "$lane"); kill "$lane" $children; done 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM
lane() { # a function, beside others
    {
        "$@"
        exit $failed
    } &
    begun="$begun $!"
}
first() {
    everywhere ar autoregressive
    everywhere insertion insertion
    everywhere pop pop
    texts ddot ddot-u-drawn,ddot-r-drawn,ddot-u-leap,ddot-u-kept,ddot-u-kept-drawn
}
second() {
    everywhere ddot unfilled,ddot-u,ddot-r
    programs ddot ddot-u-kept
    everywhere ddot_t ddot-t
    programs ddot_t ddot-t-kept
    texts ddot_t ddot-t-drawn,ddot-t-kept,ddot-t-kept-drawn,ddot-t-leap
    for factor; do
        evaluate "runs/lambda-$factor" "lambda-$factor" ddot-u,ddot-r --datasets 1bw-block,yelp-block
    done
    texts pop pop-drawn,pop-leap
    texts no_ot no-ot-u-drawn,no-ot-drawn
}
third() {
    everywhere lc lc
    everywhere no_ot no-ot,no-ot-u
    everywhere ddot_u ddot-u
    texts ddot_u ddot-u-drawn,ddot-u-kept,ddot-u-leap
    texts lc lc-drawn,lc-leap
    everywhere fixed fixed-guessed,fixed-oracle
}
lane first
lane second "$@"
lane third
for process in $begun; do wait "$process" || failed=1; done
begun=
# One after the other: these are timed. In a file that comes last they stand for those that were made beside others.
timed() { # method, ways, steps
    evaluate "runs/smollm2_$1" timed "$2" --datasets 1bw-block --steps "${3:-2,4,8,16,32,64}"
}
timed ddot ddot-u
timed ddot ddot-r 16
timed ddot_t ddot-t
timed ddot_u ddot-u
timed lc lc
timed pop pop
timed fixed fixed-guessed,fixed-oracle 16
timed insertion insertion 16
timed ar autoregressive 16
exit $failed
