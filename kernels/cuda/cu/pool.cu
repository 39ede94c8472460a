// Blocks of tokens to rows. The rows of tokens whose block is open lie in a window state of one head of f32: an operand's row,
// and with a gate behind it the row of logits.
#include "common.cuh"

constexpr u32 THREADS = 128;

struct Pool {
    const float *x;    // [tokens][width]
    const float *gate; // [tokens][width], or null
    const float *bias; // [stride][width], or null: added to the gate by place in the block
    float *out;        // [rows][width], with overlap half as wide
    u32 width;         // entries of a row of x
    u32 stride;        // tokens of a block
    u32 overlap;       // whether the first half of a row counts in the block behind its own, the second in its own
};

// A token's row in the window state; null if it is not there.
__device__ inline float *pool_row(const State &state, u32 sequence, u32 token) {
    u8 *page = state_page(state, sequence, token);
    if (!page) return nullptr;
    return reinterpret_cast<float *>(page + state.codes) + static_cast<u64>(token % state.page_rows) * state.dim;
}

// Writes the rows of all tokens. A thread takes an entry (x) of a token (y).
KERNEL __launch_bounds__(THREADS) pool_store(Pool pool, Step step, State state) {
    const u32 entry = blockIdx.x * THREADS + threadIdx.x, sequence = step.row_sequence[blockIdx.y];
    if (entry >= pool.width || sequence == NONE) return;
    const u32 token = step.row_index[blockIdx.y];
    float *row = pool_row(state, sequence, token);
    if (!row) return;
    const u64 at = static_cast<u64>(blockIdx.y) * pool.width + entry;
    row[entry] = pool.x[at];
    if (!pool.gate) return;
    const float bias = pool.bias ? pool.bias[static_cast<u64>(token % pool.stride) * pool.width + entry] : 0.0f;
    row[pool.width + entry] = pool.gate[at] + bias;
}

// Joins the rows of blocks that the step closes: `step` has the strided rows. Each channel is a sum of its entries weighted
// by the softmax over its logits; without a gate all weigh the same. A thread takes a channel (x) of a row (y).
KERNEL __launch_bounds__(THREADS) pool_join(Pool pool, Step step, State state) {
    const u32 channels = pool.overlap ? pool.width / 2 : pool.width;
    const u32 channel = blockIdx.x * THREADS + threadIdx.x, sequence = step.row_sequence[blockIdx.y];
    if (channel >= channels || sequence == NONE) return;
    const u32 first = step.row_index[blockIdx.y] * pool.stride;
    const u32 before = pool.overlap && first >= pool.stride ? pool.stride : 0;
    float greatest = -INFINITY;
    for (u32 token = first - before; token < first + pool.stride && pool.gate; ++token) {
        const float *row = pool_row(state, sequence, token);
        if (!row) continue;
        greatest = fmaxf(row[pool.width + channel + (pool.overlap && token >= first ? channels : 0)], greatest);
    }
    float sum = 0, weights = 0;
    for (u32 token = first - before; token < first + pool.stride; ++token) {
        const float *row = pool_row(state, sequence, token);
        if (!row) continue;
        const u32 entry = channel + (pool.overlap && token >= first ? channels : 0);
        const float weight = pool.gate ? expf(row[pool.width + entry] - greatest) : 1.0f;
        sum = fmaf(row[entry], weight, sum);
        weights += weight;
    }
    pool.out[static_cast<u64>(blockIdx.y) * channels + channel] = sum / weights;
}
