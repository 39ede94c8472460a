// Activations for the matrix kernels: rows of floats rounded to 8 bits in groups of 32 columns.
#include "common.cuh"

constexpr u32 GROUP = 32;      // columns that are rounded together
constexpr u32 SUPERBLOCK = 256; // rows are filled up with zeros to a multiple of it
constexpr u32 GROUP_THREADS = GROUP / 4;

// Where rounded rows go. Rows have `superblocks` · 256 integers; with `twice` each is followed by what rounding has left of it.
struct Rounded {
    u32 *codes;    // four signed bytes in a word
    float *scales; // for each group
    float2 *sums;  // for each group: of the first and of the last 16 integers
    u32 superblocks;
    u32 twice;
};

// The largest of the magnitudes of 8 neighbouring threads, as bits: of those a NaN is the largest.
__device__ inline u32 largest_of_group(u32 bits) {
    for (int mask = 1; mask < static_cast<int>(GROUP_THREADS); mask *= 2) {
        const u32 other = __shfl_xor_sync(FULL, bits, mask);
        bits = other > bits ? other : bits;
    }
    return bits;
}

// Rounds a group, four columns of which this thread has, and leaves in `x` what is left. Group `group` of row `row`.
//
// The scale is the largest magnitude over 127. A group of nothing but dust, whose reciprocal would overflow, becomes zeros. Adding
// 1.5 · 2^23 and taking it away rounds to the nearest integer, ties to even.
__device__ inline void round_group(float (&x)[4], const Rounded &to, u64 row, u32 thread) {
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const u32 magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
        bits = magnitude > bits ? magnitude : bits;
    }
    const float largest = __uint_as_float(largest_of_group(bits));
    const float inverse = largest > 1e-35f ? 127.0f / largest : 0.0f, scale = largest / 127.0f;
    u32 codes = 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float rounded = (x[i] * inverse + 12582912.0f) - 12582912.0f;
        // Beside a scale that is no number the integer may be any.
        const int code = rounded >= -127.0f && rounded <= 127.0f ? static_cast<int>(rounded) : 0;
        x[i] -= scale * static_cast<float>(code);
        codes |= (static_cast<u32>(code) & 0xff) << (8 * i);
        sum += code;
    }
    // Four threads have half a group.
    sum += __shfl_xor_sync(FULL, sum, 1);
    sum += __shfl_xor_sync(FULL, sum, 2);
    const int last = __shfl_down_sync(FULL, sum, 4);
    if (thread >= to.superblocks * (SUPERBLOCK / 4)) return;
    to.codes[row * to.superblocks * (SUPERBLOCK / 4) + thread] = codes;
    if (thread % GROUP_THREADS == 0) {
        const u64 group = row * to.superblocks * (SUPERBLOCK / GROUP) + thread / GROUP_THREADS;
        to.scales[group] = scale;
        to.sums[group] = make_float2(static_cast<float>(sum), static_cast<float>(last));
    }
}

// A thread has four columns, so that two blocks have a superblock's or more; 8 threads have a group.
constexpr u32 ROUND_THREADS = 256;

// Rounds rows of `columns` floats. Blocks: rows, times parts of a row.
KERNEL __launch_bounds__(ROUND_THREADS) quantize(const float *x, u32 columns, Rounded to) {
    const u32 thread = blockIdx.y * blockDim.x + threadIdx.x;
    const float *row = x + static_cast<u64>(blockIdx.x) * columns;
    float own[4];
    if (columns % 4 == 0 && 4 * thread < columns) {
        const float4 four = *reinterpret_cast<const float4 *>(row + 4 * thread);
        own[0] = four.x, own[1] = four.y, own[2] = four.z, own[3] = four.w;
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) own[i] = 4 * thread + i < columns ? row[4 * thread + i] : 0.0f;
    }
    const u64 target = static_cast<u64>(blockIdx.x) << to.twice;
    round_group(own, to, target, thread);
    if (to.twice) round_group(own, to, target + 1, thread);
}
