#!/bin/sh
# Train every method of the tables alike and fill the benchmarks with each:
#   results/compare.sh BENCH ROWS SECONDS [λ …]
#
# Needs a GPU, the corpora that docs/guide.md names in runs/data, and the base model in runs/base/smollm2. With values
# of λ, DDOT is also trained with each of them for a third of the seconds. Interrupted, it goes on where it was.
# TRAIN and EVALUATE may hold further options.
set -eu
bench=$1 rows=$2 seconds=$3
shift 3
python=${PYTHON:-python}
mkdir -p "$rows"

train() { # recipe, folder, seconds, settings
    recipe=$1 folder=$2 time=$3
    shift 3
    $python -m ddot train "$recipe" --output "$folder" --resume \
        --set training.seconds="$time" ${TRAIN:-} "$@" >/dev/null
}
evaluate() { # folder, name of the rows, ways, further options
    folder=$1 name=$2 ways=$3
    shift 3
    $python -m ddot evaluate "$folder" --bench "$bench" --output "$rows/$name.jsonl" --methods "$ways" \
        --tasks free ${EVALUATE:-} "$@" >/dev/null
}
everywhere() { # method, ways: all texts and programs
    evaluate "runs/smollm2_$1" "$1" "$2"
    evaluate "runs/smollm2_$1" "$1-code" "$2" --datasets code-block --tasks located,free
}

for method in ddot no_ot lc pop fixed ar insertion; do
    train smollm2_$method runs/smollm2_$method "$seconds"
done
for factor; do
    train smollm2_ddot "runs/lambda-$factor" $((seconds / 3)) --set training.position_factor="$factor"
done

# Three at a time: more of them only wait for each other. Stopped, they stop.
begun=
trap 'for lane in $begun; do pkill -P "$lane"; kill "$lane"; done 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM
lane() { # a function, beside others
    "$@" &
    begun="$begun $!"
}
first() {
    everywhere ar autoregressive
    everywhere insertion insertion
}
second() {
    everywhere ddot unfilled,ddot-u,ddot-r,ddot-u-leap,ddot-r-leap
    for factor; do
        evaluate "runs/lambda-$factor" "lambda-$factor" ddot-u,ddot-r --datasets 1bw-block,yelp-block
    done
    everywhere fixed fixed-guessed,fixed-oracle
}
third() {
    everywhere no_ot no-ot,no-ot-u
    everywhere lc lc,lc-leap
    everywhere pop pop,pop-leap
}
lane first
lane second "$@"
lane third
for process in $begun; do wait "$process"; done
begun=
# One after the other: these are timed. In a file that comes last they stand for those that were made beside others.
timed() { # method, ways
    evaluate "runs/smollm2_$1" timed "$2" --datasets 1bw-block --steps 2,4,8,16,32,64
}
timed ddot ddot-u
timed lc lc
timed pop pop
