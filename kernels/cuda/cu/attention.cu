// Attention without tensor cores: for every type of keys and values, every size of heads, and every choice of keys.
//
// K_TYPE and V_TYPE are the types of keys and values. SLOTS queries are computed together, so that a key is read once for
// them: 8, or 4 where heads are so wide that shared memory or registers would not do. A thread sums up to PARTS entries of
// the values for each.
#include "attention.cuh"

constexpr u32 THREADS = 128;

// Queries of a block.
constexpr u32 MOST = SLOTS;

// Threads that share a key while it is scored. Each takes runs of 8 entries.
constexpr u32 SHARERS = 8;

// Joins what 8 neighbouring threads have summed up for each query: thread i of them gets the sum of query i % SLOTS.
__device__ inline float gather(float (&sums)[SLOTS]) {
    const u32 lane = threadIdx.x % SHARERS;
    u32 count = SLOTS;
#pragma unroll
    for (u32 mask = SHARERS / 2; mask > 0; mask /= 2) {
        if (count > mask) {
            count = mask;
#pragma unroll
            for (u32 i = 0; i < SLOTS / 2; ++i) {
                if (i < count) {
                    const bool is_high = (lane & mask) != 0;
                    const float keep = is_high ? sums[i + count] : sums[i], give = is_high ? sums[i] : sums[i + count];
                    sums[i] = keep + __shfl_xor_sync(FULL, give, static_cast<int>(mask));
                }
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < SLOTS; ++i) {
                if (i < count) sums[i] += __shfl_xor_sync(FULL, sums[i], static_cast<int>(mask));
            }
        }
    }
    return sums[0];
}

// A block takes the queries of a tile (x) for a run of heads (z) and, where the work is split, one piece of the keys (y).
// Shared memory: SLOTS queries, PIECE × SLOTS weights, and for each key of a piece its page, its place in it and its number.
KERNEL __launch_bounds__(THREADS) attend(Queries queries, Step step, Keys keys, Partials out) {
    __shared__ float k_levels[16], v_levels[16];
    __shared__ Span spans[SLOTS];
    __shared__ float greatest[SLOTS], weight[SLOTS], total_greatest[SLOTS], total_weight[SLOTS];
    const u32 q_width = (queries.width + KV_RUN - 1) / KV_RUN * KV_RUN;
    float *q = dynamic_shared<float>();
    float *weights = q + SLOTS * q_width;
    const u8 **pages = reinterpret_cast<const u8 **>(weights + PIECE * SLOTS);
    u32 *places = reinterpret_cast<u32 *>(pages + PIECE);
    u32 *numbers = places + PIECE;

    u32 first_row = blockIdx.x, rows = 1;
    if (queries.tiles) {
        const uint2 tile = queries.tiles[blockIdx.x];
        first_row = tile.x, rows = tile.y;
    }
    const u32 sequence = step.row_sequence[first_row];
    if (sequence == NONE || rows == 0) return;
    const u32 group = queries.group, runs = (group + SLOTS - 1) / SLOTS;
    const u32 kv = blockIdx.z / runs, first_of_group = blockIdx.z % runs * SLOTS;
    const u32 used = group > SLOTS ? min(MOST, group - first_of_group) : min(MOST, rows * group);
    const auto row_of = [&](u32 slot) { return first_row + (group > SLOTS ? 0 : slot / group); };
    const auto head_of = [&](u32 slot) { return kv * group + (group > SLOTS ? first_of_group + slot : slot % group); };

    kv_load_levels<K_TYPE>(k_levels);
    kv_load_levels<V_TYPE>(v_levels);
    const float scale = queries.scale * LOG2_E;
    for (u32 i = threadIdx.x; i < SLOTS * q_width; i += THREADS) {
        const u32 slot = i / q_width, entry = i % q_width;
        const bool is_there = slot < used && entry < queries.width;
        const u64 head = is_there ? static_cast<u64>(row_of(slot)) * queries.heads + head_of(slot) : 0;
        q[i] = is_there ? queries.q[head * queries.width + entry] * scale : 0.0f;
    }
    if (threadIdx.x < SLOTS) {
        spans[threadIdx.x] = threadIdx.x < used ? span_of(keys, step, row_of(threadIdx.x)) : Span{0, 0};
        total_greatest[threadIdx.x] = -INFINITY;
        total_weight[threadIdx.x] = 0;
    }
    __syncthreads();
    // What any of the queries sees: both ends rise from row to row.
    const Span seen = {spans[0].first, spans[used - 1].end};
    Chosen chosen = {};
    Span pieces = {0, 0};
    if (keys.ids) {
        chosen = chosen_of(keys, step, first_row);
        pieces.end = (chosen.keys + PIECE - 1) / PIECE;
    } else if (seen.first < seen.end) {
        pieces = {seen.first / PIECE, (seen.end + PIECE - 1) / PIECE};
    }
    if (out.split) {
        pieces.first += blockIdx.y;
        if (pieces.first >= pieces.end) return;
        pieces.end = pieces.first + 1;
    }
    const bool k_aligns = kv_runs_align<K_TYPE>(keys.k.dim);
    const u32 step_row = keys.k.tables ? 0 : step.first_row[sequence];

    for (u32 piece = pieces.first; piece < pieces.end; ++piece) {
        const u32 first_key = piece * PIECE;
        const u32 count = min(PIECE, (keys.ids ? chosen.keys : seen.end) - first_key);
        __syncthreads();
        for (u32 i = threadIdx.x; i < PIECE; i += THREADS) {
            // Keys that nobody sees are read from where there is something, and not looked at.
            u32 number = NONE, place = 0;
            const u8 *page = nullptr;
            if (i < count) {
                number = keys.ids ? chosen_key(chosen, first_key + i) : first_key + i;
                if (number >= seen.first && number < seen.end) {
                    page = state_page(keys.k, sequence, number);
                    place = (step_row + number) % keys.k.page_rows;
                }
            }
            pages[i] = page ? page : keys.k.pool;
            places[i] = page ? place : 0;
            numbers[i] = page ? number : NONE;
        }
        __syncthreads();
        for (u32 key = threadIdx.x / SHARERS; key < (count + 15) / 16 * 16; key += THREADS / SHARERS) {
            const Head head = kv_head<K_TYPE>(keys.k, pages[key], places[key], kv);
            float sums[SLOTS] = {};
            for (u32 i = threadIdx.x % SHARERS * KV_RUN; i < queries.width; i += SHARERS * KV_RUN) {
                float run[KV_RUN];
                kv_run<K_TYPE>(head, i, queries.width, k_aligns, k_levels, run);
#pragma unroll
                for (u32 slot = 0; slot < SLOTS; ++slot) {
                    const float4 *entries = reinterpret_cast<const float4 *>(q + slot * q_width + i);
                    const float4 a = entries[0], b = entries[1];
                    float sum = sums[slot];
                    sum = fmaf(a.x, run[0], sum), sum = fmaf(a.y, run[1], sum);
                    sum = fmaf(a.z, run[2], sum), sum = fmaf(a.w, run[3], sum);
                    sum = fmaf(b.x, run[4], sum), sum = fmaf(b.y, run[5], sum);
                    sum = fmaf(b.z, run[6], sum), sum = fmaf(b.w, run[7], sum);
                    sums[slot] = sum;
                }
            }
            const float score = gather(sums);
            if (threadIdx.x % SHARERS < SLOTS) weights[key * SLOTS + threadIdx.x % SHARERS] = score;
        }
        __syncthreads();
        for (u32 slot = threadIdx.x / WARP; slot < SLOTS; slot += THREADS / WARP) {
            const Span span = spans[slot];
            float scores[PIECE / WARP], best = -INFINITY;
#pragma unroll
            for (u32 i = 0; i < PIECE / WARP; ++i) {
                const u32 key = i * WARP + threadIdx.x % WARP;
                const bool is_seen = numbers[key] >= span.first && numbers[key] < span.end;
                scores[i] = is_seen ? weights[key * SLOTS + slot] : -INFINITY;
                best = fmaxf(best, scores[i]);
            }
            best = warp_max(best);
            float sum = 0;
#pragma unroll
            for (u32 i = 0; i < PIECE / WARP; ++i) {
                const float w = scores[i] == -INFINITY ? 0.0f : exp2f(scores[i] - best);
                weights[(i * WARP + threadIdx.x % WARP) * SLOTS + slot] = w;
                sum += w;
            }
            sum = warp_sum(sum);
            if (threadIdx.x % WARP == 0) greatest[slot] = best, weight[slot] = sum;
        }
        __syncthreads();
        float sums[PARTS][SLOTS] = {};
#pragma unroll 2
        for (u32 key = 0; key < count; ++key) {
            const Head head = kv_head<V_TYPE>(keys.v, pages[key], places[key], kv);
#pragma unroll
            for (u32 part = 0; part < PARTS; ++part) {
                const u32 entry = part * THREADS + threadIdx.x;
                if (entry >= out.width) break;
                const float value = kv_entry<V_TYPE>(head, entry, v_levels);
#pragma unroll
                for (u32 slot = 0; slot < SLOTS; ++slot) {
                    const float w = weights[key * SLOTS + slot];
                    sums[part][slot] = w == 0 ? sums[part][slot] : fmaf(w, value, sums[part][slot]);
                }
            }
        }
#pragma unroll
        for (u32 slot = 0; slot < SLOTS; ++slot) {
            if (slot >= used) break;
            const u32 row = row_of(slot), head = head_of(slot);
            const Span own = pieces_of(keys, step, row);
            if (piece < own.first || piece >= own.end) continue;
            const u32 place = out.split ? piece - own.first : 0;
            if (place >= out.pieces) continue;
            const u64 at = (static_cast<u64>(row) * queries.heads + head) * out.pieces + place;
            const Join join = out.split ? Join{0, 1} : join_of(total_greatest[slot], greatest[slot]);
#pragma unroll
            for (u32 part = 0; part < PARTS; ++part) {
                const u32 entry = part * THREADS + threadIdx.x;
                if (entry >= out.width) break;
                float *sum = out.sums + at * out.width + entry;
                *sum = join.keep == 0 ? sums[part][slot] : joined(join, *sum, sums[part][slot]);
            }
            if (out.split && threadIdx.x == 0) out.marks[at] = make_float2(greatest[slot], weight[slot]);
        }
        __syncthreads();
        if (threadIdx.x < SLOTS) {
            const Join join = join_of(total_greatest[threadIdx.x], greatest[threadIdx.x]);
            total_weight[threadIdx.x] = joined(join, total_weight[threadIdx.x], weight[threadIdx.x]);
            total_greatest[threadIdx.x] = fmaxf(total_greatest[threadIdx.x], greatest[threadIdx.x]);
        }
    }
    __syncthreads();
    if (!out.split && threadIdx.x < used) {
        const u64 at = static_cast<u64>(row_of(threadIdx.x)) * queries.heads + head_of(threadIdx.x);
        out.marks[at * out.pieces] = make_float2(total_greatest[threadIdx.x], total_weight[threadIdx.x]);
    }
}
