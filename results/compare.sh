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
evaluate() { # folder, ways, further options
    folder=$1 ways=$2
    shift 2
    $python -m ddot evaluate "$folder" --bench "$bench" --output "$rows/$(basename "$folder").jsonl" --methods "$ways" \
        --tasks free ${EVALUATE:-} "$@" >/dev/null
}
everywhere() { # folder, ways: all texts and programs
    evaluate "$1" "$2"
    evaluate "$1" "$2" --datasets code-block --tasks located,free
}
together() { # a command, beside others
    "$@" &
    begun="$begun $!"
}
finish() { # all of them, or none of what follows
    for process in $begun; do wait "$process"; done
    begun=
}
begun=

for method in ddot no_ot lc pop fixed ar insertion; do
    train smollm2_$method runs/smollm2_$method "$seconds"
done
for factor; do
    train smollm2_ddot "runs/lambda-$factor" $((seconds / 3)) --set training.position_factor="$factor"
done

together everywhere runs/smollm2_ddot unfilled,ddot-u,ddot-r,ddot-u-leap,ddot-r-leap,ddot-u-turn,ddot-r-turn
together everywhere runs/smollm2_no_ot no-ot
together everywhere runs/smollm2_lc lc
together everywhere runs/smollm2_pop pop
finish
together everywhere runs/smollm2_fixed fixed-guessed,fixed-oracle
together everywhere runs/smollm2_ar autoregressive
together everywhere runs/smollm2_insertion insertion
for factor; do
    together evaluate "runs/lambda-$factor" ddot-u,ddot-r --datasets 1bw-block,yelp-block
done
finish
# One after the other: these are timed. In a file that comes last they stand for those that were made beside others.
timed() { # folder, ways
    $python -m ddot evaluate "$1" --bench "$bench" --output "$rows/timed.jsonl" --methods "$2" --tasks free \
        --datasets 1bw-block --steps 2,4,8,16,32,64 ${EVALUATE:-} >/dev/null
}
timed runs/smollm2_ddot ddot-u
timed runs/smollm2_lc lc
