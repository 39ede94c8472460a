// Products of small tiles by the tensor cores. A warp computes them together; each lane holds a part of each operand. Rows of the
// first operand and columns of the second are those of PTX: lane / 4 and, four entries to a word, lane % 4.
//
// On the host the lanes show each other their words and compute by the same table of places, so that what is tested are the
// places.
#pragma once

#include "common.cuh"

// c += a · b for bytes: a is 16 × 16, b is 16 × 8, c is 16 × 8.
//
// Lane l = 4 r + q: a[0] is row r, columns 4q to 4q + 3; a[1] the same of row r + 8; b is rows 4q to 4q + 3 of column r; c[0] and
// c[1] are row r, columns 2q and 2q + 1; c[2] and c[3] those of row r + 8.
__device__ inline void mma_16x8x16(int (&c)[4], u32 a0, u32 a1, u32 b) {
#if defined(EMULATED)
    const u32 lane = threadIdx.x % WARP, r = lane / 4, q = lane % 4;
    u32 all_a[2][WARP], all_b[WARP];
    const uint64_t *shown = emulated::exchange(static_cast<u64>(a1) << 32 | a0);
    for (u32 i = 0; i < WARP; ++i) all_a[0][i] = static_cast<u32>(shown[i]), all_a[1][i] = static_cast<u32>(shown[i] >> 32);
    shown = emulated::exchange(b);
    for (u32 i = 0; i < WARP; ++i) all_b[i] = static_cast<u32>(shown[i]);
    for (u32 i = 0; i < 4; ++i)
        for (u32 k = 0; k < 4; ++k)
            c[i] = dot4(static_cast<int>(all_a[i / 2][4 * r + k]), static_cast<int>(all_b[4 * (2 * q + i % 2) + k]), c[i]);
#elif ARCH >= 80
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a0), "r"(b));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[2]), "+r"(c[3])
                 : "r"(a1), "r"(b));
#endif
}

// c += a · b for bytes: a is 16 × 32, b is 32 × 8. As above, with the second 16 columns of a in a[2] and a[3] and the second 16 rows
// of b in b1.
__device__ inline void mma_16x8x32(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if !defined(EMULATED) && ARCH >= 80
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    mma_16x8x16(c, a[0], a[1], b0);
    mma_16x8x16(c, a[2], a[3], b1);
#endif
}

// Copies to shared memory that go on while the threads compute, from compute capability 8.0; before that the threads copy. What a
// thread copied has arrived for it after `wait_for_copies`, and for others after a barrier behind that.
template <u32 BYTES> __device__ inline void copy_async(void *shared, const void *global) {
#if !defined(EMULATED) && ARCH >= 80
    const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
    }
#else
    if (BYTES == 16) {
        *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
    } else if (BYTES == 8) {
        *static_cast<uint2 *>(shared) = *static_cast<const uint2 *>(global);
    } else {
        *static_cast<u32 *>(shared) = *static_cast<const u32 *>(global);
    }
#endif
}

__device__ inline void wait_for_copies() {
#if !defined(EMULATED) && ARCH >= 80
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
