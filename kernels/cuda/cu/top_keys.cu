// The rows of a state that a query scores highest: score_w = scale · Σ_h weight_h · max(q_h · k_w, 0). Scores are kept for a
// run of queries at a time; then the lowest score that is chosen is found digit by digit.
//
// K_TYPE is the type of the keys. PARTS is how many runs of 8 entries of a key a thread holds, of the 8 that share it.
#include "attention.cuh"

#ifndef K_TYPE
#define K_TYPE KV_F32
#endif
#ifndef PARTS
#define PARTS 1
#endif

constexpr u32 SCORE_THREADS = 128;
constexpr u32 SHARERS = 8;

// Keys of a block, and how many of them a thread has at once: as many as its registers hold.
constexpr u32 KEYS = 64;
constexpr u32 AT_ONCE = PARTS <= 2 ? 4 : PARTS <= 4 ? 2 : 1;

struct TopKeys {
    const float *q;       // [rows][heads][width], rotated if the keys are
    const float *weights; // [rows][heads], or null: 1
    float *scores;        // [rows of the run][pitch]
    u32 *ids;             // [rows][count]: rising, then NONE
    u32 heads;
    u32 width;
    u32 count;
    u32 pitch;            // most rows of the state
    u32 first_row;        // first query of the run
    u32 head_tile;        // heads whose queries are in shared memory together
    float scale;
};

// A block scores KEYS keys (x) for a query of the run (y).
KERNEL __launch_bounds__(SCORE_THREADS) score_rows(TopKeys top, Step step, Keys keys) {
    __shared__ float levels[16];
    const u32 row = top.first_row + blockIdx.y, sequence = step.row_sequence[row];
    if (sequence == NONE) return;
    const u32 complete = span_of(keys, step, row).end;
    // Where no more are there than are chosen no score is needed.
    if (complete <= top.count || blockIdx.x * KEYS >= complete) return;
    float *q = dynamic_shared<float>();
    const u32 lane = threadIdx.x % SHARERS, q_width = (top.width + KV_RUN - 1) / KV_RUN * KV_RUN;
    const bool align = kv_runs_align<K_TYPE>(keys.k.dim);
    kv_load_levels<K_TYPE>(levels);
    float totals[KEYS / (SCORE_THREADS / SHARERS)] = {};
    for (u32 first_head = 0; first_head < top.heads; first_head += top.head_tile) {
        const u32 heads = min(top.head_tile, top.heads - first_head);
        __syncthreads();
        for (u32 i = threadIdx.x; i < heads * q_width; i += SCORE_THREADS) {
            const u32 head = first_head + i / q_width, entry = i % q_width;
            const u64 at = (static_cast<u64>(row) * top.heads + head) * top.width + entry;
            q[i] = entry < top.width ? top.q[at] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (u32 turn = 0; turn < KEYS / (SCORE_THREADS / SHARERS); turn += AT_ONCE) {
            float k[AT_ONCE][PARTS * KV_RUN];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                // Keys behind the last are the last again; their scores are not kept.
                const u32 key = blockIdx.x * KEYS + (turn + i) * (SCORE_THREADS / SHARERS) + threadIdx.x / SHARERS;
                const u32 there = min(key, complete - 1);
                const u8 *page = state_page(keys.k, sequence, there);
                const Head head = kv_head<K_TYPE>(keys.k, page ? page : keys.k.pool, there % keys.k.page_rows, 0);
#pragma unroll
                for (u32 part = 0; part < PARTS; ++part) {
                    const u32 entry = (part * SHARERS + lane) * KV_RUN;
                    if (entry < top.width) {
                        kv_run<K_TYPE>(head, entry, top.width, align, levels, &k[i][part * KV_RUN]);
                    } else {
                        for (u32 e = 0; e < KV_RUN; ++e) k[i][part * KV_RUN + e] = 0;
                    }
                }
            }
            for (u32 head = 0; head < heads; ++head) {
                const float weight =
                    top.weights ? top.weights[static_cast<u64>(row) * top.heads + first_head + head] : 1.0f;
                float sums[AT_ONCE] = {};
#pragma unroll
                for (u32 part = 0; part < PARTS; ++part) {
                    const u32 entry = (part * SHARERS + lane) * KV_RUN;
                    if (entry >= top.width) break;
                    const float4 *run = reinterpret_cast<const float4 *>(q + head * q_width + entry);
                    const float4 a = run[0], b = run[1];
                    const float entries[KV_RUN] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                        for (u32 e = 0; e < KV_RUN; ++e) sums[i] = fmaf(entries[e], k[i][part * KV_RUN + e], sums[i]);
                    }
                }
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                    for (u32 mask = SHARERS / 2; mask > 0; mask /= 2) {
                        sums[i] += __shfl_xor_sync(FULL, sums[i], static_cast<int>(mask));
                    }
                    totals[turn + i] = fmaf(weight, fmaxf(sums[i], 0.0f), totals[turn + i]);
                }
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < KEYS / (SCORE_THREADS / SHARERS); ++i) {
        const u32 key = blockIdx.x * KEYS + i * (SCORE_THREADS / SHARERS) + threadIdx.x / SHARERS;
        if (lane == 0 && key < complete) top.scores[static_cast<u64>(blockIdx.y) * top.pitch + key] = totals[i] * top.scale;
    }
}

constexpr u32 CHOOSE_THREADS = 256;

// An integer in the order of the numbers, equal for equal ones; what is no number counts as the least.
__device__ inline u32 order_of(float x) {
    const u32 bits = __float_as_uint(x + 0.0f);
    if (x != x) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// How many threads of the block before this one, and how many in all, have a flag set. `counts` has a place for each warp.
__device__ inline u32 count_before(bool flag, u32 *counts, u32 &all) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 flags = __ballot_sync(FULL, flag);
    if (lane == 0) counts[warp] = __popc(flags);
    __syncthreads();
    u32 before = __popc(flags & ((1u << lane) - 1));
    all = 0;
    for (u32 i = 0; i < CHOOSE_THREADS / WARP; ++i) {
        if (i < warp) before += counts[i];
        all += counts[i];
    }
    __syncthreads();
    return before;
}

// A block lists the rows chosen for a query of the run.
KERNEL __launch_bounds__(CHOOSE_THREADS) choose_rows(TopKeys top, Step step, Keys keys) {
    __shared__ u32 histogram[256], counts[CHOOSE_THREADS / WARP], found[2];
    const u32 row = top.first_row + blockIdx.x;
    if (step.row_sequence[row] == NONE) return;
    const u32 complete = span_of(keys, step, row).end;
    u32 *ids = top.ids + static_cast<u64>(row) * top.count;
    if (complete <= top.count) {
        for (u32 i = threadIdx.x; i < top.count; i += CHOOSE_THREADS) ids[i] = i < complete ? i : NONE;
        return;
    }
    const float *scores = top.scores + static_cast<u64>(blockIdx.x) * top.pitch;
    // The score of which `wanted` more are to be chosen among those with the same digits so far.
    u32 digits = 0, wanted = top.count;
    for (u32 shift = 32; shift > 0;) {
        shift -= 8;
        histogram[threadIdx.x] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < complete; i += CHOOSE_THREADS) {
            const u32 order = order_of(scores[i]);
            if (shift == 24 || order >> (shift + 8) == digits >> (shift + 8)) atomicAdd(&histogram[(order >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 digit = 255, left = wanted;
            while (histogram[digit] < left) left -= histogram[digit--];
            found[0] = digit, found[1] = left;
        }
        __syncthreads();
        digits |= found[0] << shift;
        wanted = found[1];
        __syncthreads();
    }
    u32 listed = 0, equals = 0;
    for (u32 first = 0; first < complete; first += CHOOSE_THREADS) {
        const u32 i = first + threadIdx.x;
        const u32 order = i < complete ? order_of(scores[i]) : 0;
        const bool is_equal = i < complete && order == digits;
        u32 all_equal, all;
        const u32 equal_before = count_before(is_equal, counts, all_equal);
        const bool is_chosen = i < complete && (order > digits || (is_equal && equals + equal_before < wanted));
        const u32 before = count_before(is_chosen, counts, all);
        if (is_chosen) ids[listed + before] = i;
        listed += all;
        equals += all_equal;
    }
}
