// Matrices of floats times few rows of floats: as fast as weights come from memory. See linear_few.cu, whose blocks these have.
//
// One arithmetic, here and in float_many.cu: of a group of 32 columns those with the same remainder by 4 are summed with fused
// products, each from zero; t = (a0 + a1) + (a2 + a3). For each superblock, from zero, S = S + t; y = y + S. FORMAT is the
// weights' format.
#include "linear.cuh"

typedef formats::FORMAT Format;

constexpr u32 ROUND = 16;     // superblocks between two barriers
constexpr u32 LEAST_WARPS = 4; // of a block; with 8 rows their activations and sums take 48 KiB

// Copies a superblock of R rows of activations to shared memory. Beyond the last column there are zeros.
template <int R> __device__ void stage(const Product &p, const u32 (&rows)[R], u32 superblock, float *staged) {
    const u32 lane = threadIdx.x % WARP, first = superblock * SUPERBLOCK;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const float *row = static_cast<const float *>(p.x) + static_cast<u64>(rows[r]) * p.columns + first;
#pragma unroll
        for (u32 i = lane; i < SUPERBLOCK; i += WARP) staged[r * SUPERBLOCK + i] = first + i < p.columns ? __ldg(row + i) : 0.0f;
    }
    __syncwarp();
}

// What a superblock yields for R rows.
template <int R> __device__ void multiply(const Cell &cell, const float *staged, float (&sums)[R]) {
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] = 0.0f;
#pragma unroll 2
    for (u32 g = 0; g < GROUPS; ++g) {
        float weights[GROUP];
        Format::values(cell, g, weights);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float parts[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (u32 i = 0; i < GROUP / 4; ++i) {
                const float4 x = reinterpret_cast<const float4 *>(staged + r * SUPERBLOCK + g * GROUP)[i];
                parts[0] = fmaf(weights[4 * i], x.x, parts[0]);
                parts[1] = fmaf(weights[4 * i + 1], x.y, parts[1]);
                parts[2] = fmaf(weights[4 * i + 2], x.z, parts[2]);
                parts[3] = fmaf(weights[4 * i + 3], x.w, parts[3]);
            }
            sums[r] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
        }
    }
}

// Shared memory: ROUND · R · 32 floats, and 256 · R floats for each warp.
template <int R, bool PAIRS> __device__ void few(const Product &p) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    const u32 matrix = PAIRS ? p.ids[blockIdx.y] : blockIdx.z;
    if (matrix == NONE) return;
    const u32 items = PAIRS ? blockIdx.y + 1 : p.rows;
    const u32 first = PAIRS ? blockIdx.y : blockIdx.y * R;
    u32 rows[R];
#pragma unroll
    for (int r = 0; r < R; ++r) rows[r] = item_of(p, min(first + r, items - 1), PAIRS ? 0 : matrix).x;

    float *sums = dynamic_shared<float>();
    float *staged = sums + ROUND * R * STRIP + warp * R * SUPERBLOCK;
    constexpr u32 SUPERBLOCK_BYTES = Format::BYTES * STRIP;
    const u8 *strip = p.weights + matrix * p.matrix_bytes + static_cast<u64>(blockIdx.x) * p.superblocks * SUPERBLOCK_BYTES;
    // So that weights are on their way while activations are being copied; and later, while others are multiplied.
    if (warp < p.superblocks) prefetch(strip + static_cast<u64>(warp) * SUPERBLOCK_BYTES, SUPERBLOCK_BYTES);
    // A warp sums one row, or two where there are more rows than warps.
    constexpr int OWN = (R + LEAST_WARPS - 1) / LEAST_WARPS;
    float totals[OWN];
#pragma unroll
    for (int k = 0; k < OWN; ++k) totals[k] = 0.0f;
    for (u32 start = 0; start < p.superblocks; start += ROUND) {
        const u32 end = min(start + ROUND, p.superblocks);
        for (u32 b = start + warp; b < end; b += warps) {
            const Cell cell = {strip + static_cast<u64>(b) * SUPERBLOCK_BYTES, lane};
            if (b + warps < p.superblocks) prefetch(cell.strip + static_cast<u64>(warps) * SUPERBLOCK_BYTES, SUPERBLOCK_BYTES);
            stage<R>(p, rows, b, staged);
            float yields[R];
            multiply<R>(cell, staged, yields);
#pragma unroll
            for (int r = 0; r < R; ++r) sums[((b - start) * R + r) * STRIP + lane] = yields[r];
            __syncwarp();
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OWN; ++k) {
            const u32 r = warp + k * warps;
            if (r < R)
                for (u32 b = 0; b < end - start; ++b) totals[k] += sums[(b * R + r) * STRIP + lane];
        }
        __syncthreads();
    }
    const u32 column = blockIdx.x * STRIP + lane;
#pragma unroll
    for (int k = 0; k < OWN; ++k) {
        const u32 r = warp + k * warps;
        if (r < R && first + r < items && column < p.width)
            write(p, item_of(p, first + r, PAIRS ? 0 : matrix).out, column, matrix, totals[k]);
    }
}

KERNEL __launch_bounds__(512) few_1(Product p) { few<1, false>(p); }
KERNEL __launch_bounds__(512) few_2(Product p) { few<2, false>(p); }
KERNEL __launch_bounds__(256) few_4(Product p) { few<4, false>(p); }
KERNEL __launch_bounds__(128) few_8(Product p) { few<8, false>(p); }
KERNEL __launch_bounds__(512) few_pairs(Product p) { few<1, true>(p); }
