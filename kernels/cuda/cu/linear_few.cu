// Quantized matrices times few rows: as fast as weights come from memory.
//
// A block has one strip of 32 output rows, a lane for each; its warps share out the superblocks. What a superblock yields goes to
// shared memory, and is summed from there in the superblocks' order. FORMAT is the weights' format.
#include "linear.cuh"

typedef formats::FORMAT Format;

// Superblocks between two barriers: 16 are 4096 columns, and with 8 rows their sums take 16 KiB.
constexpr u32 ROUND = 16;

// What a warp keeps of a row's superblock in shared memory: 256 bytes, 8 scales, 8 pairs of sums.
constexpr u32 STAGED = SUPERBLOCK / 4 + 3 * GROUPS;

// Copies a superblock of R rows of activations to shared memory.
template <int R> __device__ void stage(const Product &p, const u32 (&rows)[R], u32 superblock, u32 *staged) {
    const u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const u64 block = static_cast<u64>(rows[r]) * p.superblocks + superblock;
        const uint2 codes = __ldg(static_cast<const uint2 *>(p.x) + block * (SUPERBLOCK / 8) + lane);
        reinterpret_cast<uint2 *>(staged + r * STAGED)[lane] = codes;
        u32 *more = staged + r * STAGED + SUPERBLOCK / 4;
        if (lane < GROUPS) more[lane] = __float_as_uint(__ldg(p.scales + block * GROUPS + lane));
        if (Format::OFFSETS && lane >= GROUPS && lane < 2 * GROUPS)
            reinterpret_cast<float2 *>(more + GROUPS)[lane - GROUPS] = __ldg(p.sums + block * GROUPS + lane - GROUPS);
    }
    __syncwarp();
}

// What a superblock yields for R rows.
template <int R> __device__ void multiply(const Cell &cell, const u8 *book, const u32 *staged, float (&sums)[R]) {
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] = 0.0f;
#pragma unroll
    for (u32 g = 0; g < GROUPS; ++g) {
        Group weights;
        Format::group(cell, book, g, weights);
        const float start = scaled_start<Format>(weights.scale[0]);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const u32 *row = staged + r * STAGED;
            const uint4 first = reinterpret_cast<const uint4 *>(row)[2 * g];
            const uint4 second = reinterpret_cast<const uint4 *>(row)[2 * g + 1];
            int dots[2] = {DOT_START, DOT_START};
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                const u32 part = Format::PARTS == 2 ? i / 4 : 0;
                dots[part] = dot4(static_cast<int>(weights.words[i]), static_cast<int>(word_of(first, second, i)), dots[part]);
            }
            float t = scaled_dot<Format>(dots[0], weights.scale[0], start);
            if (Format::PARTS == 2) t = fmaf(dot_value(dots[1]), weights.scale[1], t);
            const float x_scale = __uint_as_float(row[SUPERBLOCK / 4 + g]);
            float2 x_sums = make_float2(0.0f, 0.0f);
            if (Format::OFFSETS) x_sums = reinterpret_cast<const float2 *>(row + SUPERBLOCK / 4 + GROUPS)[g];
            sums[r] = finish_group<Format>(weights.offset, t, x_sums, x_scale, sums[r]);
        }
    }
}

// Blocks: strips, times R rows, times matrices of the stack; with PAIRS, times rows that each say which matrix they meet.
// Shared memory: ROUND · R · 32 floats, and STAGED · R words for each warp. There are at least R warps.
template <int R, bool PAIRS> __device__ void few(const Product &p) {
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    const u32 matrix = PAIRS ? p.ids[blockIdx.y] : blockIdx.z;
    if (matrix == NONE) return;
    const u32 items = PAIRS ? blockIdx.y + 1 : p.rows << p.twice;
    const u32 first = PAIRS ? blockIdx.y : blockIdx.y * R;
    u32 rows[R];
#pragma unroll
    for (int r = 0; r < R; ++r) rows[r] = item_of(p, min(first + r, items - 1), PAIRS ? 0 : matrix).x;

    float *sums = dynamic_shared<float>();
    u32 *staged = reinterpret_cast<u32 *>(sums + ROUND * R * STRIP) + warp * R * STAGED;
    constexpr u32 SUPERBLOCK_BYTES = Format::BYTES * STRIP;
    const u8 *strip = p.weights + matrix * p.matrix_bytes + static_cast<u64>(blockIdx.x) * p.superblocks * SUPERBLOCK_BYTES;
    // So that weights are on their way while activations are being copied; and later, while others are multiplied.
    if (warp < p.superblocks) prefetch(strip + static_cast<u64>(warp) * SUPERBLOCK_BYTES, SUPERBLOCK_BYTES);
    float total = 0.0f, rest = 0.0f;
    for (u32 start = 0; start < p.superblocks; start += ROUND) {
        const u32 end = min(start + ROUND, p.superblocks);
        for (u32 b = start + warp; b < end; b += warps) {
            const Cell cell = {strip + static_cast<u64>(b) * SUPERBLOCK_BYTES, lane};
            if (b + warps < p.superblocks) prefetch(cell.strip + static_cast<u64>(warps) * SUPERBLOCK_BYTES, SUPERBLOCK_BYTES);
            stage<R>(p, rows, b, staged);
            float yields[R];
            multiply<R>(cell, p.book, staged, yields);
#pragma unroll
            for (int r = 0; r < R; ++r) sums[((b - start) * R + r) * STRIP + lane] = yields[r];
            __syncwarp();
        }
        __syncthreads();
        if ((warp << p.twice) < R) {
            for (u32 b = 0; b < end - start; ++b) {
                const float *row = sums + (b * R + (warp << p.twice)) * STRIP + lane;
                total += row[0];
                if (p.twice) rest += row[STRIP];
            }
        }
        __syncthreads();
    }
    const u32 i = first + (warp << p.twice), column = blockIdx.x * STRIP + lane;
    if ((warp << p.twice) >= R || i >= items || column >= p.width) return;
    write(p, item_of(p, i, PAIRS ? 0 : matrix).out, column, matrix, p.twice ? total + rest : total);
}

// 512 threads at most: a warp for each superblock of a round. A thread may have 128 registers then, or 256 with 8 rows, so that
// many loads are in flight: what waits for memory is hidden by them rather than by more threads.
KERNEL __launch_bounds__(512, 1) few_1(Product p) { few<1, false>(p); }
KERNEL __launch_bounds__(512, 1) few_2(Product p) { few<2, false>(p); }
KERNEL __launch_bounds__(512, 1) few_4(Product p) { few<4, false>(p); }
KERNEL __launch_bounds__(256, 1) few_8(Product p) { few<8, false>(p); }
KERNEL __launch_bounds__(512, 1) few_pairs(Product p) { few<1, true>(p); }
