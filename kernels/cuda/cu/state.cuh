// The number formats of states: what a head becomes when it is stored, and reading it. They are those of the CPU backend
// (kernels/cpu/src/attention/quantized), with the same codes for the same numbers but for rounding.
//
// | type | code bytes of a head | scales of a head |
// | --- | --- | --- |
// | f32, f16, bf16 | 4, 2, 2 for each entry | none |
// | q8_0 | 1 for each entry | one for each 32 entries |
// | turbo4, turbo3 | 4 or 3 for each 8 entries of the rotated head | one |
//
// Rotated heads are filled up with zeros to a power of two, at least 16. Eight codes fill as many bytes as a code has bits,
// the first code lowest.
#pragma once
#include "common.cuh"

// Entries that share a scale in q8_0.
constexpr u32 KV_BLOCK = 32;

// Entries that are read at once: as many as fill whole bytes in every type.
constexpr u32 KV_RUN = 8;

__device__ constexpr bool kv_is_rotated(u32 type) { return type == KV_TURBO4 || type == KV_TURBO3; }

// Entries of a head as scores and sums see it.
__device__ inline u32 kv_width(u32 type, u32 dim) {
    if (!kv_is_rotated(type)) return dim;
    u32 width = 16;
    while (width < dim) width *= 2;
    return width;
}

__device__ inline u32 kv_code_bytes(u32 type, u32 dim) {
    switch (type) {
    case KV_F32: return dim * 4;
    case KV_F16:
    case KV_BF16: return dim * 2;
    case KV_Q8_0: return dim;
    case KV_TURBO4: return kv_width(type, dim) / 2;
    default: return kv_width(type, dim) / 8 * 3;
    }
}

__device__ inline u32 kv_scales(u32 type, u32 dim) {
    if (type == KV_Q8_0) return (dim + KV_BLOCK - 1) / KV_BLOCK;
    return kv_is_rotated(type) ? 1 : 0;
}

// The levels that codes of 4 and of 3 bits stand for, by rising code: those with which a rounded standard normal is nearest
// to the exact one in the mean square (Lloyd and Max).
__constant__ float LEVELS_4[16] = {-2.7325896f, -2.0690172f, -1.6180464f, -1.2562312f, -0.9423405f, -0.6567591f,
                                   -0.3880483f, -0.12839503f, 0.12839503f, 0.3880483f, 0.6567591f, 0.9423405f,
                                   1.2562312f, 1.6180464f, 2.0690172f, 2.7325896f};
__constant__ float LEVELS_3[8] = {-2.1519457f, -1.3439093f, -0.7560053f, -0.24509418f,
                                  0.24509418f, 0.7560053f, 1.3439093f, 2.1519457f};

template <u32 TYPE> __device__ inline float kv_level(u32 code) { return TYPE == KV_TURBO4 ? LEVELS_4[code] : LEVELS_3[code]; }

// The levels of a type in shared memory, where threads that look up different ones do not wait for each other: a table that
// the functions below are given. Types without levels need none. A barrier of the caller's makes them seen.
template <u32 TYPE> __device__ inline void kv_load_levels(float *levels) {
    if constexpr (TYPE == KV_TURBO4) {
        if (threadIdx.x < 16) levels[threadIdx.x] = LEVELS_4[threadIdx.x];
    }
    if constexpr (TYPE == KV_TURBO3) {
        if (threadIdx.x < 8) levels[threadIdx.x] = LEVELS_3[threadIdx.x];
    }
}

// The signs of the rotation, drawn with SplitMix64: a bit for each of 1024 entries. Longer heads meet the same ones again.
constexpr u32 SIGNS = 1024;

struct SignBits {
    u32 words[SIGNS / 32];
};

__host__ __device__ constexpr SignBits draw_signs() {
    SignBits out = {};
    u64 state = 0;
    for (u32 i = 0; i < SIGNS; ++i) {
        state += 0x9e3779b97f4a7c15ull;
        u64 x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        if (((x ^ (x >> 31)) >> 63) == 1) out.words[i / 32] |= 1u << (i % 32);
    }
    return out;
}

__constant__ SignBits SIGN_BITS = draw_signs();

__device__ inline float kv_signed(u32 i, float x) { return (SIGN_BITS.words[i % SIGNS / 32] >> (i % 32)) & 1 ? -x : x; }

// Rotates a head of `width` entries in shared memory: random signs, a Walsh-Hadamard transform, the same signs once more. It
// is orthonormal and its own inverse. All threads of the block take part; what they wrote before is seen, and what is
// written here is seen after a barrier of the caller's.
__device__ inline void rotate_head(float *head, u32 width) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) head[i] = kv_signed(i, head[i]);
    for (u32 half = 1; half < width; half *= 2) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < width / 2; i += blockDim.x) {
            const u32 low = i / half * (2 * half) + i % half;
            const float a = head[low], b = head[low + half];
            head[low] = a + b;
            head[low + half] = a - b;
        }
    }
    const float norm = 1.0f / sqrtf(static_cast<float>(width));
    __syncthreads();
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) head[i] = kv_signed(i, head[i]) * norm;
}

// A stored head of one row.
struct Head {
    const u8 *codes;
    const u16 *scales;
};

// Head `head` of the row at place `place` of a page.
template <u32 TYPE> __device__ inline Head kv_head(const State &state, const u8 *page, u32 place, u32 head) {
    const u64 at = static_cast<u64>(place) * state.heads + head;
    return {page + state.codes + at * kv_code_bytes(TYPE, state.dim),
            reinterpret_cast<const u16 *>(page + state.scales) + at * kv_scales(TYPE, state.dim)};
}

// One entry of a head, still rotated if the type is.
template <u32 TYPE> __device__ inline float kv_entry(Head head, u32 i, const float *levels) {
    if constexpr (TYPE == KV_F32) return reinterpret_cast<const float *>(head.codes)[i];
    if constexpr (TYPE == KV_F16) return f16_to_f32(reinterpret_cast<const u16 *>(head.codes)[i]);
    if constexpr (TYPE == KV_BF16) return bf16_to_f32(reinterpret_cast<const u16 *>(head.codes)[i]);
    if constexpr (TYPE == KV_Q8_0) {
        return static_cast<float>(reinterpret_cast<const i8 *>(head.codes)[i]) * f16_to_f32(head.scales[i / KV_BLOCK]);
    }
    if constexpr (TYPE == KV_TURBO4) {
        return levels[(head.codes[i / 2] >> (i % 2 * 4)) & 15] * f16_to_f32(head.scales[0]);
    }
    if constexpr (TYPE == KV_TURBO3) {
        const u32 bit = i % 8 * 3;
        const u8 *group = head.codes + i / 8 * 3;
        // A code may lie in two bytes; the third byte's neighbour is not there to be read.
        const u32 low = group[bit / 8], high = bit / 8 < 2 ? group[bit / 8 + 1] : 0;
        return levels[((low | high << 8) >> (bit % 8)) & 7] * f16_to_f32(head.scales[0]);
    }
}

// Whether runs of 8 entries lie where they can be loaded at once.
template <u32 TYPE> __device__ inline bool kv_runs_align(u32 dim) {
    return TYPE == KV_TURBO4 || TYPE == KV_TURBO3 || dim % KV_RUN == 0;
}

// A run of 8 entries as it is stored. Loads of several can be under way before the first is unpacked.
struct Packed {
    uint4 words[2];
    u16 scale;
};

// Loads entries i .. i + 8 of a head that lie where they can be loaded at once, for an i that is a multiple of 8.
template <u32 TYPE> __device__ inline Packed kv_fetch(Head head, u32 i) {
    Packed out = {};
    if constexpr (TYPE == KV_F32) {
        out.words[0] = reinterpret_cast<const uint4 *>(head.codes + i * 4)[0];
        out.words[1] = reinterpret_cast<const uint4 *>(head.codes + i * 4)[1];
    }
    if constexpr (TYPE == KV_F16 || TYPE == KV_BF16) out.words[0] = *reinterpret_cast<const uint4 *>(head.codes + i * 2);
    if constexpr (TYPE == KV_Q8_0) {
        const uint2 run = *reinterpret_cast<const uint2 *>(head.codes + i);
        out.words[0].x = run.x, out.words[0].y = run.y;
        out.scale = head.scales[i / KV_BLOCK];
    }
    if constexpr (TYPE == KV_TURBO4) {
        out.words[0].x = *reinterpret_cast<const u32 *>(head.codes + i / 8 * 4);
        out.scale = head.scales[0];
    }
    if constexpr (TYPE == KV_TURBO3) {
        const u8 *bytes = head.codes + i / 8 * 3;
        out.words[0].x = bytes[0] | static_cast<u32>(bytes[1]) << 8 | static_cast<u32>(bytes[2]) << 16;
        out.scale = head.scales[0];
    }
    return out;
}

template <u32 TYPE> __device__ inline void kv_unpack(const Packed &run, const float *levels, float *out) {
    const uint4 a = run.words[0], b = run.words[1];
    const u32 words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const float scale = TYPE == KV_Q8_0 || kv_is_rotated(TYPE) ? f16_to_f32(run.scale) : 1.0f;
#pragma unroll
    for (u32 e = 0; e < KV_RUN; ++e) {
        if constexpr (TYPE == KV_F32) out[e] = __uint_as_float(words[e]);
        if constexpr (TYPE == KV_F16) out[e] = f16_to_f32(static_cast<u16>(words[e / 2] >> (e % 2 * 16)));
        if constexpr (TYPE == KV_BF16) out[e] = bf16_to_f32(static_cast<u16>(words[e / 2] >> (e % 2 * 16)));
        if constexpr (TYPE == KV_Q8_0) out[e] = static_cast<float>(static_cast<i8>(words[e / 4] >> (e % 4 * 8))) * scale;
        if constexpr (TYPE == KV_TURBO4) out[e] = levels[(words[0] >> (e * 4)) & 15] * scale;
        if constexpr (TYPE == KV_TURBO3) out[e] = levels[(words[0] >> (e * 3)) & 7] * scale;
    }
}

// Entries i .. i + 8 of a head, for an i that is a multiple of 8; zeros behind the last of `width`. `align`: kv_runs_align.
template <u32 TYPE>
__device__ inline void kv_run(Head head, u32 i, u32 width, bool align, const float *levels, float *out) {
    if (align) return kv_unpack<TYPE>(kv_fetch<TYPE>(head, i), levels, out);
    for (u32 e = 0; e < KV_RUN; ++e) out[e] = i + e < width ? kv_entry<TYPE>(head, i + e, levels) : 0.0f;
}
