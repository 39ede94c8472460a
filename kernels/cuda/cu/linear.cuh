// What the matrix kernels share: what they are given, which row meets which matrix, and how results are written.
//
// One arithmetic, whichever kernel runs (see also kernels/cpu/src/linear/strip.rs): for each group of 32 columns exact integer
// dots c (one, or one for each half), then
//
//     t = c · scale,  t = c' · scale' + t for a second half,  t = offset · (sum of the activations) + t for each offset,
//
// for each superblock of 256 columns, from zero, S = t · (the activations' scale) + S for its groups in order, and y = y + S for
// the superblocks in order. Products and sums are f32; those written here with a product are fused.
#pragma once

#include "codebooks.cuh"

#ifndef ARCH
#error "ARCH is the card's compute capability: 61, 75, 80, 90, 100"
#endif

// One launch. `rows` are counted before anything is made of them: see `Item`.
struct Product {
    const u8 *weights;    // the first matrix
    u64 matrix_bytes;     // from one matrix to the next
    const u8 *book;       // the format's code book
    const void *x;        // activations: signed bytes [rows][superblocks · 256], or floats [rows][columns]
    const float *scales;  // [rows][superblocks · 8]
    const float2 *sums;   // [rows][superblocks · 8]: of the first and of the last 16 integers of a group
    float *out;           // [rows][width]
    const float *factors; // [matrices]: times what a matrix yields; or null
    const float *bias;    // [matrices][width]: added then; or null
    const float *add;     // as `out`: what that is added to; or null
    const u32 *ids;       // [rows]: which matrix a row meets, or NONE
    const uint4 *tiles;   // rows that meet one matrix: {matrix, first of `members`, how many, unused}
    const u32 *tile_count;
    const u32 *members;   // rows, those of a matrix together
    u32 superblocks;
    u32 columns;
    u32 width;            // outputs of a matrix
    u32 rows;             // results for a matrix, or results altogether where `ids` or `tiles` say which matrix
    u32 stack;            // matrices that meet neighbouring rows: result r of matrix g is row r · stack + g
    u32 share;            // neighbouring results that have one row of activations
    u32 twice;            // 1: rows of activations come in pairs: a row rounded, and what that has left, rounded
};

// One of the rows of activations that a block works on: with `twice`, two neighbouring ones make one result.
struct Item {
    u32 x;   // row of activations
    u32 out; // row of results
};

__device__ inline Item item_of(const Product &p, u32 i, u32 matrix) {
    const u32 out = (i >> p.twice) * p.stack + matrix;
    return {(out / p.share) << p.twice | (i & p.twice), out};
}

__device__ inline void write(const Product &p, u32 row, u32 column, u32 matrix, float value) {
    const u64 place = static_cast<u64>(row) * p.width + column;
    if (p.factors) value *= p.factors[matrix];
    if (p.bias) value += p.bias[static_cast<u64>(matrix) * p.width + column];
    if (p.add) value = p.add[place] + value;
    p.out[place] = value;
}

__device__ inline u32 strips_of(const Product &p) { return (p.width + STRIP - 1) / STRIP; }

// Integer dots begin here instead of at zero: as a float these bits are 1.5 · 2^23, and adding an integer below 2^22 in magnitude
// adds it to the float as well. So an addition, which is faster than a conversion, makes the dot a float, exactly.
// The largest dot of a group is 32 · 128 · 127 < 2^19.
constexpr int DOT_START = 0x4b400000;
constexpr float DOT_ZERO = 12582912.0f;
__device__ inline float dot_value(int dot) { return __int_as_float(dot) - DOT_ZERO; }

// A dot times a scale. For short scales that is one instruction: what the dot starts from, times the scale, is then exact, and
// can be taken away together with the multiplication: `start` is `scaled_start` of the scale.
template <class F> __device__ inline float scaled_start(float scale) { return F::SHORT_SCALES ? -DOT_ZERO * scale : 0.0f; }
template <class F> __device__ inline float scaled_dot(int dot, float scale, float start) {
    return F::SHORT_SCALES ? fmaf(__int_as_float(dot), scale, start) : dot_value(dot) * scale;
}

// The offsets' part of t, and then t's part of S.
template <class F>
__device__ inline float finish_group(const float *offset, float t, float2 sums, float x_scale, float sum) {
    if (F::OFFSETS) {
        if (F::PARTS == 1) {
            t = fmaf(offset[0], sums.x + sums.y, t);
        } else {
            t = fmaf(offset[0], sums.x, t);
            t = fmaf(offset[1], sums.y, t);
        }
    }
    return fmaf(t, x_scale, sum);
}

// Has the second-level cache fetch what a warp will read soon.
__device__ inline void prefetch(const u8 *start, u32 bytes) {
#ifndef EMULATED
    for (u32 at = threadIdx.x % WARP * 128; at < bytes; at += WARP * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(start + at));
#else
    static_cast<void>(start), static_cast<void>(bytes);
#endif
}
