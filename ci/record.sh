#!/usr/bin/env bash
# Records the cassettes of tests/cassettes again, one a line; NAME...: only these.
# `git diff` shows a change to vLLM only as bytes: use `vllm-harness compare`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/_bootstrap
wanted=" $* "

record() { # NAME SCENARIO MODEL FLAGS...
    local name=$1 scenario=$2 model=$3 code=0
    if [ "$wanted" != "  " ] && [[ $wanted != *" $name "* ]]; then return; fi
    vllm-harness cassette record "$scenario" --model "$model" -o "tests/cassettes/$name.yaml.gz" "${@:4}" || code=$?
    [ "$code" -le 1 ] || exit "$code" # 1: something was not as expected; the cassette shows it
}

# the same scenario on four versions, for `vllm-harness compare`
record etl-0.30 etl-three-turns qwen3 --vllm 0.30.0
record etl-0.31 etl-three-turns qwen3 --vllm 0.31.0
record etl-0.32 etl-three-turns qwen3 --vllm 0.32.0 --tokens
record etl-0.33 etl-three-turns qwen3 --vllm 0.33.0@0.32.0

# real answers of a small model on CPU, with their tokens
record smollm2-forced forced-calls smollm2-135m --lane live --tokens

# the same scenario without streaming, over another API, and with the other family
record qwen3-etl-body etl-three-turns qwen3 --no-stream
record qwen3-etl-chat etl-three-turns qwen3 --transport chat
record gpt-oss-etl etl-three-turns gpt-oss
record gpt-oss-etl-chat etl-three-turns gpt-oss --transport chat

# other scenarios: branches, tools of an MCP server that the client or vLLM itself calls, and the third API
record qwen3-branches-messages etl-branches qwen3 --transport messages
record gpt-oss-branches etl-branches gpt-oss
record qwen3-desk-mcp support-desk-mcp qwen3
record gpt-oss-desk-server-mcp support-desk-server-mcp gpt-oss --no-stream
