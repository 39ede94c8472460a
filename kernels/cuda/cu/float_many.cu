// Matrices of floats times many rows of floats, in f32 throughout: the arithmetic of float_few.cu, so its bits. FORMAT is the
// weights' format.
//
// A block yields 128 outputs of TOKENS rows, and goes through the columns in stages of 32.
#include "linear.cuh"

typedef formats::FORMAT Format;

constexpr u32 THREADS = 256;
constexpr u32 OUTPUTS = 4 * STRIP; // of a block
constexpr u32 OWN_OUTPUTS = 4;     // of a thread: with up to 8 rows, whose four sums of a group are 128 registers in flight

// A stage: 16 KiB of weights and at most 8 KiB of activations, columns outermost.
template <u32 TOKENS> struct Stage {
    float weights[GROUP][OUTPUTS];
    float x[GROUP][TOKENS + 1]; // one more, so that a warp that writes 32 columns of a row meets 32 banks
};

// Blocks: runs of TOKENS rows, or tiles; times runs of 128 outputs; times matrices of the stack. A thread has outputs
// 32 i + lane for rows `TOKENS / 8 · warp` and on.
template <u32 TOKENS, bool GROUPED> __device__ void many(const Product &p) {
    __shared__ Stage<TOKENS> stage;
    u32 matrix = blockIdx.z, first = blockIdx.x * TOKENS, count;
    if (GROUPED) {
        if (blockIdx.x >= *p.tile_count) return;
        const uint4 tile = p.tiles[blockIdx.x];
        matrix = tile.x, first = tile.y, count = tile.z;
    } else {
        count = min(TOKENS, p.rows - first);
    }
    constexpr u32 OWN = TOKENS / 8;
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 strip = min(blockIdx.y * (OUTPUTS / STRIP) + warp % 4, strips_of(p) - 1);
    const u8 *weights = p.weights + matrix * p.matrix_bytes + static_cast<u64>(strip) * p.superblocks * (Format::BYTES * STRIP);
    // The rows of activations that this warp copies.
    const float *rows[OWN];
#pragma unroll
    for (u32 j = 0; j < OWN; ++j) {
        const u32 at = first + min(OWN * warp + j, count - 1);
        const Item item = GROUPED ? item_of(p, p.members[at], 0) : item_of(p, at, matrix);
        rows[j] = static_cast<const float *>(p.x) + static_cast<u64>(item.x) * p.columns;
    }
    float totals[OWN_OUTPUTS][OWN], sums[OWN_OUTPUTS][OWN];
#pragma unroll
    for (u32 i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
        for (u32 j = 0; j < OWN; ++j) totals[i][j] = sums[i][j] = 0.0f;
    }
    for (u32 g = 0; g < p.superblocks * GROUPS; ++g) {
        __syncthreads();
        if (warp < 4) {
            float values[GROUP];
            Format::values({weights + static_cast<u64>(g / GROUPS) * (Format::BYTES * STRIP), lane}, g % GROUPS, values);
#pragma unroll
            for (u32 i = 0; i < GROUP; ++i) stage.weights[i][warp * STRIP + lane] = values[i];
        }
        const u32 column = g * GROUP + lane;
#pragma unroll
        for (u32 j = 0; j < OWN; ++j) stage.x[lane][OWN * warp + j] = column < p.columns ? rows[j][column] : 0.0f;
        __syncthreads();
        // Two outputs at a time: their sums stay in registers.
#pragma unroll
        for (u32 i = 0; i < OWN_OUTPUTS; i += 2) {
            float parts[4][2][OWN];
#pragma unroll
            for (u32 j = 0; j < OWN; ++j) {
#pragma unroll
                for (u32 part = 0; part < 4; ++part) parts[part][0][j] = parts[part][1][j] = 0.0f;
            }
            // Not unrolled further, so that few loads are in flight and nothing is spilled.
#pragma unroll 1
            for (u32 k = 0; k < GROUP; k += 4) {
#pragma unroll
                for (u32 part = 0; part < 4; ++part) {
                    const float w0 = stage.weights[k + part][i * STRIP + lane];
                    const float w1 = stage.weights[k + part][(i + 1) * STRIP + lane];
#pragma unroll
                    for (u32 j = 0; j < OWN; ++j) {
                        const float x = stage.x[k + part][OWN * warp + j];
                        parts[part][0][j] = fmaf(w0, x, parts[part][0][j]);
                        parts[part][1][j] = fmaf(w1, x, parts[part][1][j]);
                    }
                }
            }
#pragma unroll
            for (u32 e = 0; e < 2; ++e) {
#pragma unroll
                for (u32 j = 0; j < OWN; ++j)
                    sums[i + e][j] += (parts[0][e][j] + parts[1][e][j]) + (parts[2][e][j] + parts[3][e][j]);
            }
        }
        if (g % GROUPS == GROUPS - 1) {
#pragma unroll
            for (u32 i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
                for (u32 j = 0; j < OWN; ++j) {
                    totals[i][j] += sums[i][j];
                    sums[i][j] = 0.0f;
                }
            }
        }
    }
#pragma unroll
    for (u32 j = 0; j < OWN; ++j) {
        const u32 token = OWN * warp + j;
        if (token >= count) continue;
        const u32 at = first + token;
        const u32 row = GROUPED ? item_of(p, p.members[at], 0).out : item_of(p, at, matrix).out;
#pragma unroll
        for (u32 i = 0; i < OWN_OUTPUTS; ++i) {
            const u32 column = blockIdx.y * OUTPUTS + i * STRIP + lane;
            if (column < p.width) write(p, row, column, matrix, totals[i][j]);
        }
    }
}

KERNEL __launch_bounds__(THREADS) many_16(Product p) { many<16, false>(p); }
KERNEL __launch_bounds__(THREADS) many_32(Product p) { many<32, false>(p); }
KERNEL __launch_bounds__(THREADS) many_64(Product p) { many<64, false>(p); }
KERNEL __launch_bounds__(THREADS) grouped_16(Product p) { many<16, true>(p); }
KERNEL __launch_bounds__(THREADS) grouped_32(Product p) { many<32, true>(p); }
KERNEL __launch_bounds__(THREADS) grouped_64(Product p) { many<64, true>(p); }
