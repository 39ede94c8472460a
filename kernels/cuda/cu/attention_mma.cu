// Attention with tensor cores, from compute capability 8.0 on: for heads of a multiple of 16 entries, up to 256; and, where
// values are the first entries of keys, up to 576.
//
// K_TYPE and V_TYPE are the types of keys and values, K_DIM and V_DIM the entries of a head as it is stored. A warp has 16
// queries: the query heads of a head of keys, of as many rows as the tile has. Within a piece it goes through blocks of
// KEYS keys with a softmax that is corrected as greater scores come; queries, keys, weights and values meet as half floats
// (or as bfloat16, where the state is), sums are f32.
#include "attention.cuh"
#include "mma_f16.cuh"

// For older cards the file is empty: every file compiles for every card.
#if defined(EMULATED) || __CUDA_ARCH__ >= 800

// Wide heads: two warps share 16 queries, and each sums half of the entries of the values, as many as registers hold. Queries
// stay in shared memory, and values are read where the keys lie.
constexpr bool IS_WIDE = K_DIM > 256;
constexpr u32 PARTS = IS_WIDE ? 2 : 1;
constexpr u32 V_PART = V_DIM / PARTS;

constexpr u32 WARPS = 4;
constexpr u32 THREADS = WARPS * WARP;

// Queries of a block: each brings the cost of a block's keys down, while registers hold 16 for a warp.
constexpr u32 MOST = WARPS / PARTS * 16;

// Keys of a block, such that keys, values and the pages fit into the 48 KiB of shared memory that need no asking; with wide
// heads, such that they and the queries fit into the 99 KiB that every such card gives when asked.
constexpr u32 KEYS = K_DIM + V_DIM > 256 ? 32 : 64;

// Entries from row to row in shared memory: an odd multiple of 16 bytes, so that 8 rows lie in different banks.
constexpr u32 K_PITCH = K_DIM + 8;
constexpr u32 V_PITCH = IS_WIDE ? K_PITCH : V_DIM + 8;

constexpr bool K_BF16 = K_TYPE == KV_BF16;
constexpr bool V_BF16 = V_TYPE == KV_BF16;

static_assert(K_DIM % 16 == 0 && V_PART % 16 == 0 && K_DIM <= 576 && V_PART <= 256, "sizes of heads");
static_assert(!IS_WIDE || K_TYPE == V_TYPE, "values of wide heads are the first entries of the keys");

// Where the rows of two pieces lie: the one in hand and the next.
struct Places {
    const u8 *pages[2 * PIECE];
    u32 places[2 * PIECE];
};

// Notes where the rows of a piece lie: those that any query of the tile sees.
__device__ inline void note_piece(Places &there, const Keys &keys, const Chosen &chosen, u32 sequence, u32 step_row,
                                  Span seen, u32 piece) {
    for (u32 i = threadIdx.x; i < PIECE; i += THREADS) {
        const u32 key = piece * PIECE + i;
        u32 number = key;
        bool is_seen = true;
        if (keys.ids) {
            is_seen = key < chosen.keys;
            number = is_seen ? chosen_key(chosen, key) : 0;
        }
        is_seen = is_seen && number >= seen.first && number < seen.end;
        there.pages[key % (2 * PIECE)] = is_seen ? state_page(keys.k, sequence, number) : nullptr;
        there.places[key % (2 * PIECE)] = is_seen ? (step_row + number) % keys.k.page_rows : 0;
    }
}

// Brings a block of keys or values to shared memory as half floats; zeros for those that are not there.
template <u32 TYPE, u32 DIM, u32 PITCH>
__device__ inline void load_block(u16 *to, const Places &there, const State &state, u32 head, u32 first_key,
                                  const float *levels) {
    constexpr u32 RUNS = DIM / KV_RUN, ALL = KEYS * RUNS;
    if constexpr (TYPE == KV_F16 || TYPE == KV_BF16) {
        for (u32 i = threadIdx.x; i < ALL; i += THREADS) {
            const u32 key = i / RUNS, run = i % RUNS, at = (first_key + key) % (2 * PIECE);
            const u8 *page = there.pages[at];
            const Head stored = kv_head<TYPE>(state, page ? page : state.pool, there.places[at], head);
            copy_16(to + key * PITCH + run * KV_RUN, stored.codes + run * 16, page != nullptr);
        }
    } else {
        // Several loads are under way before the first is waited for.
        constexpr u32 AT_ONCE = 4;
        for (u32 first = threadIdx.x; first < ALL; first += AT_ONCE * THREADS) {
            Packed runs[AT_ONCE];
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; ++j) {
                const u32 i = min(first + j * THREADS, ALL - 1), at = (first_key + i / RUNS) % (2 * PIECE);
                const u8 *page = there.pages[at];
                const Head stored = kv_head<TYPE>(state, page ? page : state.pool, there.places[at], head);
                runs[j] = kv_fetch<TYPE>(stored, i % RUNS * KV_RUN);
            }
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; ++j) {
                const u32 i = first + j * THREADS;
                if (i >= ALL) break;
                float x[KV_RUN];
                kv_unpack<TYPE>(runs[j], levels, x);
                uint4 halves = make_uint4(pack_halves<false>(x[0], x[1]), pack_halves<false>(x[2], x[3]),
                                          pack_halves<false>(x[4], x[5]), pack_halves<false>(x[6], x[7]));
                if (!there.pages[(first_key + i / RUNS) % (2 * PIECE)]) halves = make_uint4(0, 0, 0, 0);
                *reinterpret_cast<uint4 *>(to + i / RUNS * PITCH + i % RUNS * KV_RUN) = halves;
            }
        }
    }
    copies_commit();
}

// A block takes the queries of a tile (x) for a run of heads (z) and, where the work is split, one piece of the keys (y).
KERNEL __launch_bounds__(THREADS) attend_mma(Queries queries, Step step, Keys keys, Partials out) {
    __shared__ float k_levels[16], v_levels[16];
    u16 *k_block = dynamic_shared<u16>();
    u16 *v_block = IS_WIDE ? k_block : k_block + KEYS * K_PITCH;
    u16 *q_block = v_block + KEYS * V_PITCH;
    Places &there = *reinterpret_cast<Places *>(q_block + (IS_WIDE ? MOST * K_PITCH : 0));

    // Tiles that see most come first.
    u32 first_row = gridDim.x - 1 - blockIdx.x, rows = 1;
    if (queries.tiles) {
        const uint2 tile = queries.tiles[first_row];
        first_row = tile.x, rows = tile.y;
    }
    const u32 sequence = step.row_sequence[first_row];
    if (sequence == NONE || rows == 0) return;
    const u32 group = queries.group, runs = (group + MOST - 1) / MOST;
    const u32 kv = blockIdx.z / runs, first_of_group = blockIdx.z % runs * MOST;
    const u32 used = group > MOST ? min(MOST, group - first_of_group) : min(MOST, rows * group);
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    const u32 first_slot = warp / PARTS * 16, first_value = warp % PARTS * V_PART;
    const bool is_active = first_slot < used;
    // The tokens that any of the queries sees, and the keys that are walked: the same, or a list of some of them.
    const Span seen = {span_of(keys, step, first_row).first, span_of(keys, step, first_row + rows - 1).end};
    const Chosen chosen = keys.ids ? chosen_of(keys, step, first_row) : Chosen{};
    const Span walked = keys.ids ? Span{0, chosen.keys} : seen;

    // The thread's two queries: rows g and g + 8 of the warp's.
    u32 row_of[2], heads[2];
    Span spans[2];
    bool is_used[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        const u32 slot = first_slot + g + 8 * i;
        is_used[i] = slot < used;
        row_of[i] = first_row + (group > MOST || !is_used[i] ? 0 : slot / group);
        heads[i] = kv * group + (!is_used[i] ? 0 : group > MOST ? first_of_group + slot : slot % group);
        // What is not used sees everything, and is not kept.
        spans[i] = !is_used[i] ? Span{0, NONE} : keys.ids ? walked : span_of(keys, step, row_of[i]);
    }
    // Keys that all of the warp's queries see need no mask.
    u32 all_first = max(spans[0].first, spans[1].first), all_end = min(spans[0].end, spans[1].end);
    u32 any_first = is_used[0] ? spans[0].first : NONE, any_end = is_used[0] ? spans[0].end : 0;
    if (is_used[1]) any_first = min(any_first, spans[1].first), any_end = max(any_end, spans[1].end);
    for (u32 mask = 4; mask < WARP; mask *= 2) {
        all_first = max(all_first, __shfl_xor_sync(FULL, all_first, static_cast<int>(mask)));
        all_end = min(all_end, __shfl_xor_sync(FULL, all_end, static_cast<int>(mask)));
        any_first = min(any_first, __shfl_xor_sync(FULL, any_first, static_cast<int>(mask)));
        any_end = max(any_end, __shfl_xor_sync(FULL, any_end, static_cast<int>(mask)));
    }

    u32 q[IS_WIDE ? 1 : K_DIM / 16][4];
    if constexpr (IS_WIDE) {
        for (u32 i = threadIdx.x; i < MOST * (K_DIM / 2); i += THREADS) {
            const u32 slot = i / (K_DIM / 2), entry = i % (K_DIM / 2) * 2;
            float2 pair = make_float2(0, 0);
            if (slot < used) {
                const u32 row = first_row + (group > MOST ? 0 : slot / group);
                const u32 of_row = kv * group + (group > MOST ? first_of_group + slot : slot % group);
                const u64 head = static_cast<u64>(row) * queries.heads + of_row;
                pair = *reinterpret_cast<const float2 *>(queries.q + head * K_DIM + entry);
            }
            *reinterpret_cast<u32 *>(q_block + slot * K_PITCH + entry) = pack_halves<K_BF16>(pair.x, pair.y);
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < K_DIM / 16; ++k) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 which = i % 2, entry = k * 16 + i / 2 * 8 + 2 * t;
                float2 pair = make_float2(0, 0);
                if (is_used[which]) {
                    const u64 head = static_cast<u64>(row_of[which]) * queries.heads + heads[which];
                    pair = *reinterpret_cast<const float2 *>(queries.q + head * K_DIM + entry);
                }
                q[k][i] = pack_halves<K_BF16>(pair.x, pair.y);
            }
        }
    }
    kv_load_levels<K_TYPE>(k_levels);
    kv_load_levels<V_TYPE>(v_levels);

    // The blocks of keys that the tile sees, or those of one piece.
    u32 block = walked.first / KEYS, end = walked.first < walked.end ? (walked.end + KEYS - 1) / KEYS : block;
    constexpr u32 PER_PIECE = PIECE / KEYS;
    if (out.split) {
        const u32 piece = walked.first / PIECE + blockIdx.y;
        block = max(block, piece * PER_PIECE);
        end = min(end, (piece + 1) * PER_PIECE);
        if (block >= end) return;
    }
    const u32 step_row = keys.k.tables ? 0 : step.first_row[sequence];
    if (block < end) note_piece(there, keys, chosen, sequence, step_row, seen, block / PER_PIECE);
    __syncthreads();
    if (block < end) load_block<K_TYPE, K_DIM, K_PITCH>(k_block, there, keys.k, kv, block * KEYS, k_levels);

    const float scale = queries.scale * LOG2_E;
    float total_greatest[2] = {-INFINITY, -INFINITY}, total_weight[2] = {0, 0};
    float greatest[2] = {-INFINITY, -INFINITY}, weight[2] = {0, 0};
    float sums[V_PART / 8][4];
#pragma unroll
    for (u32 n = 0; n < V_PART / 8; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;

    for (u32 first_of_loop = block; block < end; ++block) {
        const u32 first_key = block * KEYS;
        const bool has_next = block + 1 < end;
        if ((block % PER_PIECE == 0 || block == first_of_loop) && (block / PER_PIECE + 1) * PER_PIECE < end) {
            note_piece(there, keys, chosen, sequence, step_row, seen, block / PER_PIECE + 1);
        }
        copies_wait<0>();
        __syncthreads();
        if constexpr (!IS_WIDE) {
            load_block<V_TYPE, V_DIM, V_PITCH>(v_block, there, keys.v, kv, first_key, v_levels);
        }
        // Whether any of the warp's queries sees a key of the block.
        const bool is_seen = is_active && first_key < any_end && first_key + KEYS > any_first;
        float scores[KEYS / 8][4];
        if (is_seen) {
#pragma unroll
            for (u32 n = 0; n < KEYS / 8; ++n) scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
#pragma unroll
            for (u32 k = 0; k < K_DIM / 16; ++k) {
                u32 a[4];
                if constexpr (IS_WIDE) {
                    load_matrices<false>(a, q_block + (first_slot + lane % 16) * K_PITCH + k * 16 + lane / 16 * 8);
                } else {
                    a[0] = q[k][0], a[1] = q[k][1], a[2] = q[k][2], a[3] = q[k][3];
                }
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; n += 2) {
                    u32 b[4];
                    const u32 key = n * 8 + lane / 16 * 8 + lane % 8, entry = k * 16 + lane / 8 % 2 * 8;
                    load_matrices<false>(b, k_block + key * K_PITCH + entry);
                    mma_16x8x16<K_BF16>(scores[n], a, {b[0], b[1]});
                    mma_16x8x16<K_BF16>(scores[n + 1], a, {b[2], b[3]});
                }
            }
        }
        if constexpr (!IS_WIDE) {
            __syncthreads();
            if (has_next) load_block<K_TYPE, K_DIM, K_PITCH>(k_block, there, keys.k, kv, first_key + KEYS, k_levels);
        }
        if (is_seen) {
            if (keys.ids || first_key < all_first || first_key + KEYS > all_end) {
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; ++n) {
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        const u32 key = first_key + n * 8 + 2 * t + i % 2;
                        const Span span = spans[i / 2];
                        const bool is_there = !keys.ids || there.pages[key % (2 * PIECE)];
                        if (key < span.first || key >= span.end || !is_there) scores[n][i] = -INFINITY;
                    }
                }
            }
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                float best = -INFINITY;
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; ++n) best = fmaxf(best, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
                best = fmaxf(best, __shfl_xor_sync(FULL, best, 1));
                best = fmaxf(best, __shfl_xor_sync(FULL, best, 2));
                best = fmaxf(best * scale, greatest[i]);
                // Of a query that has seen nothing all weights are zero.
                const float shift = best == -INFINITY ? 0.0f : best;
                const float factor = exp2f(greatest[i] - shift);
                greatest[i] = best;
                float sum = 0;
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; ++n) {
                    scores[n][2 * i] = exp2f(fmaf(scores[n][2 * i], scale, -shift));
                    scores[n][2 * i + 1] = exp2f(fmaf(scores[n][2 * i + 1], scale, -shift));
                    sum += scores[n][2 * i];
                    sum += scores[n][2 * i + 1];
                }
                weight[i] = fmaf(weight[i], factor, sum);
#pragma unroll
                for (u32 n = 0; n < V_PART / 8; ++n) sums[n][2 * i] *= factor, sums[n][2 * i + 1] *= factor;
            }
        }
        if constexpr (!IS_WIDE) {
            if (has_next) copies_wait<1>();
            else copies_wait<0>();
            __syncthreads();
        }
        if (is_seen) {
#pragma unroll
            for (u32 k = 0; k < KEYS / 16; ++k) {
                const u32 a[4] = {pack_halves<V_BF16>(scores[2 * k][0], scores[2 * k][1]),
                                  pack_halves<V_BF16>(scores[2 * k][2], scores[2 * k][3]),
                                  pack_halves<V_BF16>(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                                  pack_halves<V_BF16>(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
                for (u32 n = 0; n < V_PART / 8; n += 2) {
                    u32 b[4];
                    const u32 key = k * 16 + lane % 16, entry = first_value + n * 8 + lane / 16 * 8;
                    load_matrices<true>(b, v_block + key * V_PITCH + entry);
                    mma_16x8x16<V_BF16>(sums[n], a, {b[0], b[1]});
                    mma_16x8x16<V_BF16>(sums[n + 1], a, {b[2], b[3]});
                }
            }
        }
        __syncthreads();
        if constexpr (IS_WIDE) {
            if (has_next) load_block<K_TYPE, K_DIM, K_PITCH>(k_block, there, keys.k, kv, first_key + KEYS, k_levels);
        }
        if ((block + 1) % PER_PIECE != 0 && has_next) continue;
        // The end of a piece.
        const u32 piece = block / PER_PIECE;
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            weight[i] += __shfl_xor_sync(FULL, weight[i], 1);
            weight[i] += __shfl_xor_sync(FULL, weight[i], 2);
            const bool is_own = spans[i].first < spans[i].end && piece >= spans[i].first / PIECE && piece * PIECE < spans[i].end;
            const u32 place = out.split ? piece - spans[i].first / PIECE : 0;
            const Join join = out.split ? Join{0, 1} : join_of(total_greatest[i], greatest[i]);
            if (is_used[i] && is_own && place < out.pieces) {
                const u64 at = (static_cast<u64>(row_of[i]) * queries.heads + heads[i]) * out.pieces + place;
                float2 *to = reinterpret_cast<float2 *>(out.sums + at * V_DIM + first_value + 2 * t);
#pragma unroll
                for (u32 n = 0; n < V_PART / 8; ++n) {
                    float2 pair = make_float2(sums[n][2 * i], sums[n][2 * i + 1]);
                    if (join.keep != 0) {
                        const float2 before = to[n * 4];
                        pair = make_float2(joined(join, before.x, pair.x), joined(join, before.y, pair.y));
                    }
                    to[n * 4] = pair;
                }
                if (out.split && t == 0 && first_value == 0) out.marks[at] = make_float2(greatest[i], weight[i]);
            }
            total_weight[i] = joined(join_of(total_greatest[i], greatest[i]), total_weight[i], weight[i]);
            total_greatest[i] = fmaxf(total_greatest[i], greatest[i]);
            greatest[i] = -INFINITY;
            weight[i] = 0;
        }
#pragma unroll
        for (u32 n = 0; n < V_PART / 8; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
    }
    if (out.split || t != 0 || first_value != 0) return;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        if (!is_used[i]) continue;
        const u64 at = (static_cast<u64>(row_of[i]) * queries.heads + heads[i]) * out.pieces;
        out.marks[at] = make_float2(total_greatest[i], total_weight[i]);
    }
}

#endif
