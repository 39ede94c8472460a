// Matrices of floats times many rows of floats, by the tensor cores (compute capability 8.0 and up). FORMAT is the weights' format.
//
// Both operands are split into terms of 16 bits (bf16), whose products are exact and are summed in f32: x = x0 + x1 + x2 up to
// 2^-24 of x; a bf16 weight is one term, an f16 weight exactly two, an f32 weight three up to 2^-24 of it. Of the products those are left
// out that are below 2^-24 of the whole. So a result is as near to the exact one as sums in f32 are: within 2^-20 of the sum of the
// magnitudes of its products. Its bits are not those of float_few.cu, but do not depend on the rows beside it.
#include "linear.cuh"
#include "mma_f16.cuh"

typedef formats::FORMAT Format;

constexpr u32 THREADS = 256;       // 8 warps: 4 along the outputs, times 2 along the rows
constexpr u32 OUTPUTS = 4 * STRIP; // of a block
constexpr u32 X_TERMS = 3;
constexpr u32 TERMS = (Format::MANTISSA + 7) / 8; // of a weight

// 32 columns: 8 KiB for each term of the weights, and with 64 rows 12 KiB of activations. A row's 32 columns are 16 words, of which
// word i lies at i ^ 4 · (row / 2 % 4), so that 8 lanes that read 4 words, one of each of 8 rows, meet in no bank.
template <u32 TOKENS> struct Stage {
    u32 weights[TERMS][OUTPUTS][16];
    u32 x[X_TERMS][TOKENS][16];
};

__device__ inline u32 swizzled(u32 row, u32 word) { return word ^ (4 * (row / 2 % 4)); }

// The next term of two numbers, which are left without it.
__device__ inline u32 next_term(float &first, float &second) {
    const u16 low = f32_to_bf16(first), high = f32_to_bf16(second);
    first -= bf16_to_f32(low);
    second -= bf16_to_f32(high);
    return low | static_cast<u32>(high) << 16;
}

// Blocks and rows as in linear_many.cu.
template <u32 TOKENS, bool GROUPED> __device__ void many(const Product &p) {
    __shared__ __align__(16) Stage<TOKENS> stage;
    u32 matrix = blockIdx.z, first = blockIdx.x * TOKENS, count;
    if (GROUPED) {
        if (blockIdx.x >= *p.tile_count) return;
        const uint4 tile = p.tiles[blockIdx.x];
        matrix = tile.x, first = tile.y, count = tile.z;
    } else {
        count = min(TOKENS, p.rows - first);
    }
    constexpr u32 RUNS = TOKENS / 16; // of 8 rows, for each warp
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, r = lane / 4, q = lane % 4;
    const u32 first_row = warp % 4 * STRIP, first_token = warp / 4 * (TOKENS / 2);
    const u32 strip = min(blockIdx.y * (OUTPUTS / STRIP) + warp % 4, strips_of(p) - 1);
    const u8 *weights = p.weights + matrix * p.matrix_bytes + static_cast<u64>(strip) * p.superblocks * (Format::BYTES * STRIP);
    float totals[2][RUNS][4], sums[2][RUNS][4];
#pragma unroll
    for (u32 i = 0; i < 8 * RUNS; ++i) totals[i % 2][i / 2 % RUNS][i / 2 / RUNS] = sums[i % 2][i / 2 % RUNS][i / 2 / RUNS] = 0.0f;

    for (u32 g = 0; g < p.superblocks * GROUPS; ++g) {
        __syncthreads();
        if (warp < 4) {
            // Four warps split the weights.
            float values[GROUP];
            Format::values({weights + static_cast<u64>(g / GROUPS) * (Format::BYTES * STRIP), lane}, g % GROUPS, values);
            const u32 row = threadIdx.x;
#pragma unroll
            for (u32 term = 0; term < TERMS; ++term) {
#pragma unroll
                for (u32 i = 0; i < 16; i += 4) {
                    u32 words[4];
#pragma unroll
                    for (u32 k = 0; k < 4; ++k) words[k] = next_term(values[2 * (i + k)], values[2 * (i + k) + 1]);
                    uint4 *to = reinterpret_cast<uint4 *>(&stage.weights[term][row][swizzled(row, i)]);
                    *to = make_uint4(words[0], words[1], words[2], words[3]);
                }
            }
        } else {
            // And four the activations, four columns at a time.
            for (u32 task = threadIdx.x - THREADS / 2; task < 8 * TOKENS; task += THREADS / 2) {
                const u32 token = task / 8, column = g * GROUP + 4 * (task % 8);
                const u32 at = first + min(token, count - 1);
                const Item item = GROUPED ? item_of(p, p.members[at], 0) : item_of(p, at, matrix);
                const float *x = static_cast<const float *>(p.x) + static_cast<u64>(item.x) * p.columns + column;
                float own[4];
                if (p.columns % 4 == 0 && column < p.columns) {
                    const float4 four = *reinterpret_cast<const float4 *>(x);
                    own[0] = four.x, own[1] = four.y, own[2] = four.z, own[3] = four.w;
                } else {
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) own[i] = column + i < p.columns ? x[i] : 0.0f;
                }
#pragma unroll
                for (u32 term = 0; term < X_TERMS; ++term) {
                    const u32 low = next_term(own[0], own[1]), high = next_term(own[2], own[3]);
                    uint2 *to = reinterpret_cast<uint2 *>(&stage.x[term][token][swizzled(token, 2 * (task % 8))]);
                    *to = make_uint2(low, high);
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (u32 step = 0; step < 2; ++step) {
            // Of two tiles of 16 outputs, for 16 columns.
            u32 a[2][TERMS][4];
#pragma unroll
            for (u32 tile = 0; tile < 2; ++tile) {
#pragma unroll
                for (u32 i = 0; i < 4 * TERMS; ++i) {
                    const u32 row = first_row + 16 * tile + 8 * (i % 2) + r;
                    a[tile][i / 4][i % 4] = stage.weights[i / 4][row][swizzled(row, 8 * step + 4 * (i % 4 / 2) + q)];
                }
            }
#pragma unroll
            for (u32 run = 0; run < RUNS; ++run) {
                const u32 token = first_token + 8 * run + r;
                // The smallest terms first.
#pragma unroll
                for (u32 i = X_TERMS; i-- > 0;) {
                    const u32 b[2] = {stage.x[i][token][swizzled(token, 8 * step + q)],
                                      stage.x[i][token][swizzled(token, 8 * step + 4 + q)]};
#pragma unroll
                    for (u32 term = TERMS; term-- > 0;) {
                        if (term + i >= X_TERMS) continue;
                        mma_16x8x16<true>(sums[0][run], a[0][term], b);
                        mma_16x8x16<true>(sums[1][run], a[1][term], b);
                    }
                }
            }
        }
        if (g % GROUPS == GROUPS - 1) {
#pragma unroll
            for (u32 i = 0; i < 8 * RUNS; ++i) {
                float &sum = sums[i % 2][i / 2 % RUNS][i / 2 / RUNS];
                totals[i % 2][i / 2 % RUNS][i / 2 / RUNS] += sum;
                sum = 0.0f;
            }
        }
    }
#pragma unroll
    for (u32 run = 0; run < RUNS; ++run) {
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const u32 token = first_token + 8 * run + 2 * q + j;
            if (token >= count) continue;
            const u32 at = first + token;
            const u32 row = GROUPED ? item_of(p, p.members[at], 0).out : item_of(p, at, matrix).out;
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 column = blockIdx.y * OUTPUTS + first_row + 8 * i + r;
                if (column < p.width) write(p, row, column, matrix, totals[i / 2][run][2 * (i % 2) + j]);
            }
        }
    }
}

// With 64 rows 64 registers hold sums; two blocks fit a multiprocessor.
KERNEL __launch_bounds__(THREADS, 2) many_16(Product p) { many<16, false>(p); }
KERNEL __launch_bounds__(THREADS, 2) many_32(Product p) { many<32, false>(p); }
KERNEL __launch_bounds__(THREADS, 2) many_64(Product p) { many<64, false>(p); }
KERNEL __launch_bounds__(THREADS, 2) grouped_16(Product p) { many<16, true>(p); }
KERNEL __launch_bounds__(THREADS, 2) grouped_32(Product p) { many<32, true>(p); }
KERNEL __launch_bounds__(THREADS, 2) grouped_64(Product p) { many<64, true>(p); }
