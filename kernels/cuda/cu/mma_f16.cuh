// Tensor cores for half floats and bfloat16, from compute capability 8.0 on, with what feeds them. Lane l of a warp has
// g = l / 4 and t = l % 4; two neighbouring columns lie in one register, the lower one low.
//
// | operand | register | rows | columns |
// | --- | --- | --- | --- |
// | a, 16 × 16 | 0, 1, 2, 3 | g, g + 8, g, g + 8 | 2t, 2t + 1 (0, 1) and 2t + 8, 2t + 9 (2, 3) |
// | b, 16 × 8 | 0, 1 | 2t, 2t + 1 and 2t + 8, 2t + 9 | g |
// | c, 16 × 8 | 0, 1, 2, 3 | g (0, 1) and g + 8 (2, 3) | 2t, 2t + 1 |
#pragma once
#include "common.cuh"

#ifdef EMULATED

// Two halves of a register as the bits of two floats.
template <bool BF16> inline u64 floats_of(u32 pair) {
    const u16 low = static_cast<u16>(pair), high = static_cast<u16>(pair >> 16);
    const float a = BF16 ? bf16_to_f32(low) : f16_to_f32(low), b = BF16 ? bf16_to_f32(high) : f16_to_f32(high);
    return static_cast<u64>(__float_as_uint(b)) << 32 | __float_as_uint(a);
}

// c += a · b.
template <bool BF16> inline void mma_16x8x16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    u64 left[4][WARP], right[2][WARP];
    for (u32 i = 0; i < 4; ++i) std::memcpy(left[i], emulated::exchange(floats_of<BF16>(a[i])), sizeof left[i]);
    for (u32 i = 0; i < 2; ++i) std::memcpy(right[i], emulated::exchange(floats_of<BF16>(b[i])), sizeof right[i]);
    const u32 g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (u32 i = 0; i < 4; ++i) {
        const u32 column = 2 * t + i % 2;
        for (u32 k = 0; k < 16; ++k) {
            const u64 x = left[i / 2 + k / 8 * 2][g * 4 + k % 8 / 2], y = right[k / 8][column * 4 + k % 8 / 2];
            const u32 shift = k % 2 * 32;
            c[i] = fmaf(__uint_as_float(static_cast<u32>(x >> shift)), __uint_as_float(static_cast<u32>(y >> shift)), c[i]);
        }
    }
}

// Four matrices of 8 × 8: lanes 0 to 7 name the rows of the first, and so on. Lane l gets of each the entries 2t, 2t + 1 of
// row g; transposed, those of column g.
template <bool TRANSPOSED> inline void load_matrices(u32 (&out)[4], const u16 *row) {
    u64 rows[32];
    std::memcpy(rows, emulated::exchange(reinterpret_cast<u64>(row)), sizeof rows);
    const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (u32 i = 0; i < 4; ++i) {
        const auto entry = [&](u32 r, u32 c) { return static_cast<u32>(reinterpret_cast<const u16 *>(rows[i * 8 + r])[c]); };
        out[i] = TRANSPOSED ? entry(2 * t, g) | entry(2 * t + 1, g) << 16 : entry(g, 2 * t) | entry(g, 2 * t + 1) << 16;
    }
    // Who is ahead must not overwrite what others still read.
    emulated::exchange(0);
}

template <bool BF16> inline u32 pack_halves(float low, float high) {
    const u32 a = BF16 ? f32_to_bf16(low) : f32_to_f16(low), b = BF16 ? f32_to_bf16(high) : f32_to_f16(high);
    return a | b << 16;
}

inline void copy_16(void *shared, const void *global, bool is_there) {
    if (is_there) std::memcpy(shared, global, 16);
    else std::memset(shared, 0, 16);
}
inline void copies_commit() {}
template <int LEFT> inline void copies_wait() {}

#else

__device__ inline u32 shared_address(const void *pointer) {
    u32 out;
    asm("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }" : "=r"(out) : "l"(pointer));
    return out;
}

template <bool BF16> __device__ inline void mma_16x8x16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
}

template <bool TRANSPOSED> __device__ inline void load_matrices(u32 (&out)[4], const u16 *row) {
    const u32 at = shared_address(row);
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    }
}

// Two numbers, rounded to the nearest, ties to even.
template <bool BF16> __device__ inline u32 pack_halves(float low, float high) {
    u32 out;
    if constexpr (BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// Copies 16 bytes to shared memory behind the thread's back, or zeros. Copies are done when those of their group are.
__device__ inline void copy_16(void *shared, const void *global, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(is_there ? 16 : 0)
                 : "memory");
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups but the last LEFT are done.
template <int LEFT> __device__ inline void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

#endif
