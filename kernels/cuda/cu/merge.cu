// The end of attention: joins the results of pieces, of one source of keys or of two.
#include "attention.cuh"

constexpr u32 THREADS = 128;

// Most entries of a value that a thread joins: 1024 of a rotated head of 576.
constexpr u32 MOST_PARTS = 8;

// A source of keys: its results, and whether its values are rotated. Without places for pieces it is none.
struct Source {
    Partials partials;
    u32 is_rotated;
};

// Joins the results of one source for one head: the sums of entries threadIdx.x, THREADS + threadIdx.x, …
__device__ inline float2 join_source(const Source &source, const Keys &keys, const Step &step, u32 row, u64 head,
                                     float (&sums)[MOST_PARTS], float *shared) {
    const Partials &p = source.partials;
    float2 total = make_float2(-INFINITY, 0);
    u32 count = 1;
    if (p.split) {
        const Span pieces = pieces_of(keys, step, row);
        count = min(pieces.end - pieces.first, p.pieces);
    }
    for (u32 piece = 0; piece < count; ++piece) {
        const u64 at = head * p.pieces + piece;
        const float2 mark = p.marks[at];
        const Join join = join_of(total.x, mark.x);
        if (join.take == 0) continue;
        total.y = joined(join, total.y, mark.y);
        total.x = fmaxf(total.x, mark.x);
#pragma unroll
        for (u32 part = 0; part < MOST_PARTS; ++part) {
            const u32 entry = part * THREADS + threadIdx.x;
            if (entry >= p.width) break;
            sums[part] = joined(join, sums[part], p.sums[at * p.width + entry]);
        }
    }
    if (source.is_rotated) {
        __syncthreads();
        for (u32 part = 0, entry = threadIdx.x; entry < p.width; ++part, entry += THREADS) shared[entry] = sums[part];
        rotate_head(shared, p.width);
        __syncthreads();
        for (u32 part = 0, entry = threadIdx.x; entry < p.width; ++part, entry += THREADS) sums[part] = shared[entry];
    }
    return total;
}

// A block takes a head (y) of a row (x). `sinks` has the score of one more key for each head, or is null. The result has
// `dim` entries for each head: zeros if no key was seen.
KERNEL __launch_bounds__(THREADS) merge(Step step, Source first, Keys first_keys, Source second, Keys second_keys,
                                        const float *sinks, float *out, u32 dim) {
    float *shared = dynamic_shared<float>();
    const u32 row = blockIdx.x;
    if (step.row_sequence[row] == NONE) return;
    const u64 head = static_cast<u64>(row) * gridDim.y + blockIdx.y;
    float sums[MOST_PARTS] = {};
    float2 total = join_source(first, first_keys, step, row, head, sums, shared);
    if (second.partials.pieces != 0) {
        float more[MOST_PARTS] = {};
        const float2 mark = join_source(second, second_keys, step, row, head, more, shared);
        const Join join = join_of(total.x, mark.x);
#pragma unroll
        for (u32 part = 0; part < MOST_PARTS; ++part) sums[part] = joined(join, sums[part], more[part]);
        total.y = joined(join, total.y, mark.y);
        total.x = fmaxf(total.x, mark.x);
    }
    const bool is_seen = total.x != -INFINITY;
    float share = 0;
    if (is_seen && sinks) {
        const float sink = sinks[blockIdx.y] * LOG2_E, greatest = fmaxf(total.x, sink);
        const float of_keys = exp2f(total.x - greatest);
        share = of_keys / fmaf(total.y, of_keys, exp2f(sink - greatest));
    }
#pragma unroll
    for (u32 part = 0; part < MOST_PARTS; ++part) {
        const u32 entry = part * THREADS + threadIdx.x;
        if (entry >= dim) break;
        out[head * dim + entry] = !is_seen ? 0.0f : sinks ? sums[part] * share : sums[part] / total.y;
    }
}
