// Enough of CUDA's language for the kernels to run on the host, thread by thread, for tests.
//
// Each thread of a block is a fiber with a stack of its own. A fiber runs until it waits: at a barrier of its block, or at
// an exchange within its warp. Blocks run one after another. A barrier that some threads never reach ends the launch with
// an error. Shared memory is filled with NaNs before each block.
#pragma once

#include <math.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#define KERNEL extern "C" void
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// Statics of a host thread: blocks run one after another on it.
#define __shared__ static thread_local
#define __constant__ static const

struct uint3 { unsigned x, y, z; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulated {

struct Fiber;
extern thread_local Fiber *current;
extern thread_local uint3 thread_index, block_index, block_size, grid_size;
extern thread_local unsigned char *dynamic;

void block_barrier();
// Gives `value` to the warp and waits for all lanes of it; then `slots` has what each of the 32 lanes gave.
const uint64_t *exchange(uint64_t value);
uint3 thread_of_current();
[[noreturn]] void fail(const char *why);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float x);

template <class T> inline uint64_t to_bits(T x) {
    static_assert(sizeof(T) <= 8, "exchanged values have at most 64 bits");
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof(T));
    return bits;
}

template <class T> inline T from_bits(uint64_t bits) {
    T x;
    std::memcpy(&x, &bits, sizeof(T));
    return x;
}

} // namespace emulated

#define threadIdx (::emulated::thread_of_current())
#define blockIdx (::emulated::block_index)
#define blockDim (::emulated::block_size)
#define gridDim (::emulated::grid_size)

template <class T> inline T *dynamic_shared() { return reinterpret_cast<T *>(emulated::dynamic); }

inline void __syncthreads() { emulated::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulated::exchange(0); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T> inline T __shfl_sync(unsigned, T x, int lane, int width = 32) {
    const unsigned self = threadIdx.x % 32;
    const uint64_t *all = emulated::exchange(emulated::to_bits(x));
    return emulated::from_bits<T>(all[(self & ~unsigned(width - 1)) | (unsigned(lane) & unsigned(width - 1))]);
}
template <class T> inline T __shfl_xor_sync(unsigned, T x, int mask, int width = 32) {
    const unsigned self = threadIdx.x % 32, other = self ^ unsigned(mask);
    const uint64_t *all = emulated::exchange(emulated::to_bits(x));
    return other / unsigned(width) > self / unsigned(width) ? x : emulated::from_bits<T>(all[other]);
}
template <class T> inline T __shfl_up_sync(unsigned, T x, unsigned delta, int width = 32) {
    const unsigned self = threadIdx.x % 32;
    const uint64_t *all = emulated::exchange(emulated::to_bits(x));
    return self % unsigned(width) < delta ? x : emulated::from_bits<T>(all[self - delta]);
}
template <class T> inline T __shfl_down_sync(unsigned, T x, unsigned delta, int width = 32) {
    const unsigned self = threadIdx.x % 32;
    const uint64_t *all = emulated::exchange(emulated::to_bits(x));
    return self % unsigned(width) + delta >= unsigned(width) ? x : emulated::from_bits<T>(all[self + delta]);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
    const uint64_t *all = emulated::exchange(predicate != 0);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) bits |= unsigned(all[lane] & 1) << lane;
    return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += int(int8_t(unsigned(a) >> (8 * i))) * int(int8_t(unsigned(b) >> (8 * i)));
    return c;
}
inline float __uint_as_float(unsigned x) { return emulated::from_bits<float>(x); }
inline float __int_as_float(int x) { return emulated::from_bits<float>(unsigned(x)); }
inline unsigned __float_as_uint(float x) { return unsigned(emulated::to_bits(x)); }
inline int __float_as_int(float x) { return int(emulated::to_bits(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const uint64_t both = uint64_t(b) << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= unsigned((both >> (8 * ((s >> (4 * i)) & 7))) & 0xff) << (8 * i);
    return out;
}
// Byte by byte, as the SIMD instructions for video have it.
inline unsigned __vsub4(unsigned a, unsigned b) {
    unsigned out = 0;
    for (int i = 0; i < 32; i += 8) out |= (((a >> i) - (b >> i)) & 0xff) << i;
    return out;
}
inline unsigned __vadd4(unsigned a, unsigned b) {
    unsigned out = 0;
    for (int i = 0; i < 32; i += 8) out |= (((a >> i) + (b >> i)) & 0xff) << i;
    return out;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline int __float2int_rn(float x) { return int(nearbyintf(x)); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
// A launch's threads run on one thread of the host.
template <class T> inline T atomicAdd(T *p, T x) { const T old = *p; *p = old + x; return old; }
template <class T> inline T atomicMax(T *p, T x) { const T old = *p; if (x > old) *p = x; return old; }
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
