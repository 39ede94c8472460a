#!/usr/bin/env bash
# What wants a real card, in pieces that each take less than ten minutes:
#   tests/device.sh build     on the machine that builds: everything that the pieces need, into target/device (carry it along)
#   tests/device.sh kernels   every op, state kernel and product on the card, against plain loops
#   tests/device.sh golden    every fixture on the card: logits, greedy tokens, all equalities; and served from it
#   tests/device.sh speed     figures beside the card's limits, of models at random that are made on the spot
# The last three need no network and no toolchain but NVRTC: that of `BANTAM_NVRTC`, or of one of NVIDIA's Python packages. They go
# on where something fails, and end with what did.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
device=target/device

build() {
    set -e
    rm -rf "$device"
    mkdir -p "$device"
    echo "$root" > "$device/root"
    cargo build --release --bin bantam
    cargo build --release -p bantam-families --example random_model
    cp target/release/bantam target/release/examples/random_model "$device"
    # A test program is named by its crate and its file.
    cargo test --workspace --profile ci --no-run --message-format json |
        python3 -c '
import json, shutil, sys
wanted = {("bantam-cuda", "ops"), ("bantam-cuda", "linear"), ("bantam-cuda", "state"), ("bantam-families", "suite"),
          ("bantam-runtime", "card"), ("bantam", "golden")}
for line in sys.stdin:
    made = json.loads(line)
    if made.get("reason") != "compiler-artifact" or not made.get("executable"):
        continue
    name = made["package_id"].split("#")[-1].split("@")[0].split("/")[-1]
    name = name if name.startswith("bantam") else made["manifest_path"].split("/")[-2]
    package = {"cuda": "bantam-cuda", "families": "bantam-families", "runtime": "bantam-runtime"}.get(name, name)
    package = package if package.startswith("bantam-") else "bantam"
    key = (package, made["target"]["name"])
    if "test" in made["target"]["kind"] and key in wanted:
        shutil.copy(made["executable"], sys.argv[1] + "/" + "-".join(key))
        wanted.discard(key)
sys.exit(f"not built: {sorted(wanted)}" if wanted else 0)
' "$device"
    # The golden tests run the binary of their own profile.
    mkdir -p "$device/ci"
    cp target/ci/bantam "$device/ci"
    strip "$device"/bantam* "$device/random_model" "$device/ci/bantam"
    du -sh "$device"
}

# Test programs have the paths of the tree in which they were built.
as_built() {
    local built
    built=$(cat "$device/root")
    if [ "$built" != "$root" ]; then
        mkdir -p "$(dirname "$built")"
        ln -sfn "$root" "$built"
    fi
    mkdir -p target/ci
    cp "$device/ci/bantam" target/ci/bantam
    export BANTAM_TEST_CARD=${BANTAM_TEST_CARD:-0}
    if [ -z "${BANTAM_NVRTC:-}" ]; then
        local places
        places=$(python3 -c 'import site, sys; print(*{*sys.path, *site.getsitepackages()} - {""}, sep="\n")')
        BANTAM_NVRTC=$(while read -r place; do find "$place"/nvidia -name 'libnvrtc.so*' 2>/dev/null; done <<<"$places" | head -1)
    fi
    if [ -n "$BANTAM_NVRTC" ]; then
        export BANTAM_NVRTC
    else
        unset BANTAM_NVRTC
    fi
}

failed=()
piece() {
    printf '\n== %s\n' "$*"
    local begin=$SECONDS
    "$@" || failed+=("$1 ${2:-}")
    printf -- '-- %s s\n' "$((SECONDS - begin))"
}

kernels() {
    as_built
    piece "$device/bantam-cuda-ops"
    piece "$device/bantam-cuda-state"
    piece "$device/bantam-cuda-linear"
}

golden() {
    as_built
    piece "$device/bantam-families-suite" card
    piece "$device/bantam-runtime-card"
    piece "$device/bantam-golden"
}

speed() {
    as_built
    local models=${BANTAM_DEVICE_MODELS:-/tmp/bantam-device-models}
    mkdir -p "$models"
    piece "$device/bantam" doctor
    for model in qwen3-8b:Q4_K_M qwen3-8b:Q8_0 qwen3-30b-a3b:Q4_K_M; do
        local file=$models/${model/:/-}.gguf
        [ -f "$file" ] || piece "$device/random_model" "${model%:*}" "${model#*:}" "$file"
        piece "$device/bantam" benchmark "$file" --backend cuda --prompt-tokens 4096 --decode-tokens 64 --json
        piece "$device/bantam" benchmark "$file" --backend cuda --prompt-tokens 128 --decode-tokens 32 --batch 32 --json
        rm -f "$file"
    done
}

case ${1:-} in
    build | kernels | golden | speed) "$1" ;;
    *)
        sed -n '2,9p' "$0" >&2
        exit 2
        ;;
esac
if [ "${#failed[@]}" -gt 0 ]; then
    printf '\nfailed: %s\n' "${failed[*]}" >&2
    exit 1
fi
