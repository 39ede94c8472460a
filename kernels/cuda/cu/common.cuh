// What every kernel file begins with: integer names, number formats of 16 bits, reductions, and how a step looks to a kernel.
//
// The files are compiled by NVRTC for the card at hand, and, in tests, by a C++ compiler for the host (EMULATED; see
// kernels/cuda/emulated). They use no header of the CUDA toolkit, so that only NVRTC itself must be there.
//
// Rules for all of them:
// - Kernels have names that CUDA's own functions do not have: `norm` is one of theirs.
// - Blocks have one dimension. Sizes are named constants, with the reason beside them.
// - A multiplication and an addition are fused only where fmaf says so (NVRTC is told --fmad=false), so that two kernels
//   that compute the same thing compute the same bits.
// - Every thread of a block reaches every barrier.
#pragma once

#ifdef EMULATED
#include "emulation.h"
#else
#define KERNEL extern "C" __global__ void
#define INFINITY __uint_as_float(0x7f800000u)

// Dynamic shared memory, whose size the launch gives.
template <class T> __device__ inline T *dynamic_shared() {
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
    return reinterpret_cast<T *>(dynamic_shared_bytes);
}
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 WARP = 32;
constexpr u32 FULL = 0xffffffffu;

// An integer that stands for nothing: no row, no expert, no page, no slot.
constexpr u32 NONE = 0xffffffffu;

__device__ inline float f16_to_f32(u16 bits) {
#ifdef EMULATED
    return emulated::f16_to_f32(bits);
#else
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
    return out;
#endif
}

// Rounds to the nearest, ties to even.
__device__ inline u16 f32_to_f16(float x) {
#ifdef EMULATED
    return emulated::f32_to_f16(x);
#else
    u16 out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
    return out;
#endif
}

__device__ inline float bf16_to_f32(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }

// Rounds to the nearest, ties to even; a NaN stays one.
__device__ inline u16 f32_to_bf16(float x) {
    const u32 bits = __float_as_uint(x);
    if (x != x) return static_cast<u16>((bits >> 16) | 0x40);
    return static_cast<u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Four products of signed bytes, added to c.
__device__ inline int dot4(int a, int b, int c) {
#if defined(EMULATED) || __CUDA_ARCH__ >= 610
    return __dp4a(a, b, c);
#else
#error "compute capability 6.1 is the lowest that is supported"
#endif
}

// Sum and maximum over a warp: every lane gets the result.
__device__ inline float warp_sum(float x) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(FULL, x, mask);
    return x;
}

__device__ inline float warp_max(float x) {
    for (int mask = WARP / 2; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, mask));
    return x;
}

// Sum over a block of whole warps, at most 32 of them: every thread gets the result. `scratch` has a place for each warp.
__device__ inline float block_sum(float x, float *scratch) {
    x = warp_sum(x);
    const u32 warps = blockDim.x / WARP;
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0;
    for (u32 i = 0; i < warps; ++i) sum += scratch[i];
    __syncthreads();
    return sum;
}

__device__ inline float block_max(float x, float *scratch) {
    x = warp_max(x);
    const u32 warps = blockDim.x / WARP;
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    float best = scratch[0];
    for (u32 i = 1; i < warps; ++i) best = fmaxf(best, scratch[i]);
    __syncthreads();
    return best;
}

// A step as kernels see it: rows of several sequences, one sequence after another. Its rows are tokens; or, for ops over
// other rows, some of the tokens (those whose logits are wanted), or the rows of a strided state that the step completes.
// Arrays lie on the device.
struct Step {
    u32 rows;
    u32 sequences;
    const u32 *row_sequence; // [rows] which sequence of the step a row is of; NONE: a row that fills up, and is passed over
    const u32 *row_index;    // [rows] a token's index in the sequence, or a strided row's index in its state
    const u32 *start;        // [sequences] index in the sequence of its first token of the step
    const u32 *first_row;    // [sequences + 1] its first token among those of the step
};

// How a state of rows is stored. A page of its group has at `codes` the rows' codes, [page_rows][heads][code bytes], and at
// `scales` the rows' scales, [page_rows][heads][scales of a head] half floats, if its type has any. Both offsets, and the
// size of a page, are multiples of 16 bytes. See state.cuh for the types.
struct State {
    u8 *pool;              // page 0
    u64 page_bytes;
    const u32 *tables;     // [sequences][table_pages]; null: all rows lie in page 0, by their number in the step
    u32 table_pages;
    u32 page_rows;         // rows of a page
    u32 codes;             // offset in a page
    u32 scales;            // offset in a page
    u32 stride;            // tokens that a row stands for
    u32 heads;
    u32 dim;               // entries of a head
    u32 type;              // one of KvType
};

enum KvType : u32 { KV_F32 = 0, KV_F16 = 1, KV_BF16 = 2, KV_Q8_0 = 3, KV_TURBO4 = 4, KV_TURBO3 = 5 };

// The page that holds row `row` of a sequence; null if it is not there.
__device__ inline u8 *state_page(const State &state, u32 sequence, u32 row) {
    if (!state.tables) return state.pool;
    const u32 page = state.tables[static_cast<u64>(sequence) * state.table_pages + row / state.page_rows];
    return page == NONE ? nullptr : state.pool + page * state.page_bytes;
}

// How a step advances one recurrent state of its sequences: see RecurrentStep in kernels/backend. A slot holds for each
// state its value, and behind it two banks of the inputs of tentative rows: a step reads one and writes the other, so that a
// slot can be advanced in place.
struct Recurrence {
    float *slots;          // slot 0
    u64 slot_floats;       // floats of a slot
    const u32 *from;       // [sequences] slot that is read, NONE: zeros
    const u32 *to;         // [sequences] slot that is written; NONE: a sequence that fills up, and is passed over
    const u32 *accepted;   // [sequences] kept rows of `from` to be taken in first
    const u32 *tentative;  // [sequences] rows at the end of the step that are kept instead of taken in
    const u32 *from_bank;  // [sequences] which bank of `from` has its kept rows, 0 or 1
    const u32 *to_bank;    // [sequences] which bank of `to` gets the step's
    u64 value;             // first float of the value in a slot
    u64 kept;              // first float of the banks
    u32 inputs;            // floats that are kept of a row
    u32 bank_rows;         // rows of a bank
};

// The value in slot `slot`, and the kept inputs of row `row` in one of its banks.
__device__ inline float *slot_value(const Recurrence &r, u32 slot) { return r.slots + slot * r.slot_floats + r.value; }

__device__ inline float *slot_kept(const Recurrence &r, u32 slot, u32 bank, u32 row) {
    return r.slots + slot * r.slot_floats + r.kept + static_cast<u64>(bank * r.bank_rows + row) * r.inputs;
}
