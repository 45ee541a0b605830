#!/bin/sh
# Train methods of the tables alike:
#   results/train.sh SECONDS NAME …
# NAME: ddot, ddot_u, ddot_t, no_ot, lc, pop, fixed, insertion, flexible, expand, ar, or trunk (what all but ar start from), into
# runs/smollm2_NAME; or a value of λ, with which DDOT is trained into runs/lambda-NAME. Where positions are learnt, λ is
# LAMBDA, or else the recipe's.
#
# Needs a GPU, the corpora that docs/training.md names in runs/data, the base model in runs/base/smollm2, and the trunk.
# Interrupted, it goes on where it was; what fails does not stop the others, and the exit status is 1. TRAIN may hold more
# options.
set -u
if [ $# -lt 2 ]; then
    echo "results/train.sh SECONDS NAME …: got $# of them; say how long, and which methods" >&2
    exit 2
fi
failed=0
seconds=$1
shift

for name; do
    recipe=smollm2_$name folder=runs/smollm2_$name factor=${LAMBDA:-}
    case $name in [0-9]*) recipe=smollm2_ddot folder=runs/lambda-$name factor=$name ;; esac
    "${PYTHON:-python}" -m ddot train "$recipe" --output "$folder" --resume --set training.seconds="$seconds" \
        ${TRAIN:-} ${factor:+--set training.position_factor=$factor} >/dev/null || failed=1
done
exit $failed
