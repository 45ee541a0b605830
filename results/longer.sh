#!/bin/sh
# Train methods side by side on one GPU, each from the language model, and evaluate their checkpoints as they were:
#   results/longer.sh BENCH SECONDS NAME:STEPS:METHOD[,METHOD] …
# such as
#   results/longer.sh bench 1800 ddot_ut:850:ddot-t,ddot-u lc:500:lc
# NAME as in results/train.sh, trained into runs/longer/NAME without programs, with a checkpoint after every STEPS steps;
# METHODs fill blocks with it. SECONDS on the clock, of which each run has its share of the GPU. Rows with intervals go to
# rows/longer.jsonl, paired differences at the last checkpoints (each METHOD minus those after it) to
# rows/longer-differences.jsonl.
#
# Needs a GPU, the base model in runs/base/smollm2, and in runs/data the corpora of SOURCES. Interrupted, it goes on where
# it was; what fails does not stop the others, and the exit status is 1. TRAIN and EVALUATE may hold more options.
set -u
if [ $# -lt 3 ]; then
    echo "results/longer.sh BENCH SECONDS NAME:STEPS:METHODS …: got $# of them; give at least one run" >&2
    exit 2
fi
bench=$1 seconds=$2
shift 2
for run; do
    case $run in
    [a-z]*:[1-9]*:[a-z]*) ;;
    *) echo "results/longer.sh: '$run' is not NAME:STEPS:METHODS, such as lc:500:lc" >&2 && exit 2 ;;
    esac
done
ddot="${PYTHON:-python} -m ddot" rows=rows/longer.jsonl failed=0 pids='' methods='' last=''
sources=${SOURCES:-news-form:1.8,1bw-real:0.2,review-form:1.8,review-short:0.2}

for run; do
    name=${run%%:*} steps=${run#*:}
    $ddot train "smollm2_$name" --output "runs/longer/$name" --resume --set start=runs/base/smollm2 \
        --set data.sources="$sources" --set data.dev=none --set data.workers=$((14 / $#)) --set training.keep=99 \
        --set training.seconds="$seconds" --set training.save_every="${steps%%:*}" ${TRAIN:-} >/dev/null &
    pids="$pids $!"
done
for pid in $pids; do wait "$pid" || failed=1; done

mkdir -p rows
for run; do
    methods=$methods${methods:+,}${run##*:}
    for checkpoint in "runs/longer/${run%%:*}"/step-*; do
        $ddot evaluate "$checkpoint" --bench "$bench" --output "$rows" --datasets 1bw-block,yelp-block --tasks free \
            --methods "${run##*:}" ${EVALUATE:-} >/dev/null || failed=1
    done
    last="$last -e ${checkpoint}\""
done
$ddot rescore "$rows" --bench "$bench" --metrics bleu2,bleu4,success,gaps_found,gaps_extra,length_error \
    --samples 1000 >/dev/null || failed=1
share=$(awk "BEGIN { print 1 / $# }")
sed -i "/\"gpu_share\"/! s/}\$/, \"gpu_share\": $share}/" "$rows" || failed=1

# The last checkpoints alone are compared, the methods named first with all after them.
grep $last "$rows" >rows/longer-last.jsonl && grep $last rows/longer.texts.jsonl >rows/longer-last.texts.jsonl || failed=1
: >rows/longer-differences.jsonl
while [ "${methods#*,}" != "$methods" ]; do
    $ddot compare rows/longer-last.jsonl --bench "$bench" --methods "$methods" --metrics bleu4,success,gaps_found --json \
        >>rows/longer-differences.jsonl || failed=1
    methods=${methods#*,}
done
exit $failed
