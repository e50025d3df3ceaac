#!/usr/bin/env bash
# From text to a model of your own in four commands.
#
#   bash examples/pretrain.sh [TEXT]      without a file: the documentation installed on this machine
#   BUDGET=30m bash examples/pretrain.sh
set -euo pipefail
TEXT=${1:-docs.jsonl}
[ -e "$TEXT" ] || bertworks corpus docs --out "$TEXT"
bertworks vocab train "$TEXT" --size "${VOCAB_SIZE:-8000}" --out vocab
bertworks prepare "$TEXT" --tokenizer vocab --out shards
bertworks pretrain shards --preset bert-mini --objective mlm --budget "${BUDGET:-10m}" --out run
bertworks fill run "${SENTENCE:-This function returns a [MASK] of strings.}"
