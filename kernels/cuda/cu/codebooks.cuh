// The formats with code books: an index stands for eight or four magnitudes at once. The books lie in the device's memory.
#pragma once

#include "formats.cuh"

namespace formats {

// Entry `i` of a book of eight, or of four bytes.
__device__ inline uint2 eight(const u8 *book, u32 i) { return __ldg(reinterpret_cast<const uint2 *>(book) + i); }
__device__ inline u32 four(const u8 *book, u32 i) { return __ldg(reinterpret_cast<const u32 *>(book) + i); }

// Four magnitudes, none of them zero, negated where a bit says so.
__device__ inline u32 with_signs(u32 magnitudes, u32 bits) {
    const u32 ones = bits_apart(bits);
    return (magnitudes ^ (ones * 0xff)) + ones;
}

// Seven signs and the eighth, which makes the number of negative values even.
__device__ inline u32 even_signs(u32 index) { return index | (static_cast<u32>(__popc(index)) & 1) << 7; }

// A scale that counts in halves of a step, in the order of products that the formats define.
__device__ inline float halves_scale(float d, u32 scale, float factor) { return d * (0.5f + static_cast<float>(scale)) * factor; }

__device__ inline void signed_eight(uint2 magnitudes, u32 signs, u32 *words) {
    words[0] = with_signs(magnitudes.x, signs);
    words[1] = with_signs(magnitudes.y, signs >> 4);
}

// 8 × (4 indexes, 4 × 7 signs and 4 bits of scale), d.
struct IQ2_XXS : Shape<66, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const uint2 packed = pair_of(cell.chunk(g / 2), g % 2);
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            signed_eight(eight(book, byte_of(packed, i)), even_signs((packed.y >> (7 * i)) & 127), out.words + 2 * i);
        out.scale[0] = halves_scale(f16_to_f32(cell.rest<u16>(64)), packed.y >> 28, 0.25f);
    }
};

// 32 × (9 bits of index, 7 signs), 16 nibbles of scales, d.
struct IQ2_XS : Shape<74, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const uint2 packed = pair_of(cell.chunk(g / 2), g % 2);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 entry = short_of(packed, i);
            signed_eight(eight(book, entry & 511), even_signs(entry >> 9), out.words + 2 * i);
        }
        const u32 scales = byte_of(cell.rest<uint2>(64), g);
        const float d = f16_to_f32(cell.rest<u16>(72));
        out.scale[0] = halves_scale(d, scales & 15, 0.25f);
        out.scale[1] = halves_scale(d, scales >> 4, 0.25f);
    }
};

// 32 bytes of indexes, 32 of signs, 8 of high bits of indexes, 16 nibbles of scales, d.
struct IQ2_S : Shape<82, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const u32 low = word_of(cell.chunk(g / 4), g % 4), signs = word_of(cell.chunk(2 + g / 4), g % 4);
        const uint4 last = cell.chunk(4);
        const u32 high = byte_of(last, g), scales = byte_of(last, 8 + g);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 index = ((low >> (8 * i)) & 0xff) | ((high >> (2 * i)) & 3) << 8;
            signed_eight(eight(book, index), signs >> (8 * i), out.words + 2 * i);
        }
        const float d = f16_to_f32(cell.rest<u16>(80));
        out.scale[0] = halves_scale(d, scales & 15, 0.25f);
        out.scale[1] = halves_scale(d, scales >> 4, 0.25f);
    }
};

// 64 bytes of indexes, 8 × (4 × 7 signs and 4 bits of scale), d.
struct IQ3_XXS : Shape<98, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const uint2 indexes = pair_of(cell.chunk(g / 2), g % 2);
        const u32 packed = word_of(cell.chunk(4 + g / 4), g % 4);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const u32 signs = even_signs((packed >> (7 * (i / 2))) & 127) >> (4 * (i % 2));
            out.words[i] = with_signs(four(book, byte_of(indexes, i)), signs);
        }
        out.scale[0] = halves_scale(f16_to_f32(cell.rest<u16>(96)), packed >> 28, 0.5f);
    }
};

// 64 bytes of indexes, 32 of signs, 8 of ninth bits of indexes, 8 nibbles of scales, d.
struct IQ3_S : Shape<110, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const uint2 indexes = pair_of(cell.chunk(g / 2), g % 2);
        const u32 signs = word_of(cell.chunk(4 + g / 4), g % 4), high = byte_of(cell.rest<uint2>(96), g);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const u32 index = byte_of(indexes, i) | ((high >> i) & 1) << 8;
            out.words[i] = with_signs(four(book, index), signs >> (4 * i));
        }
        const u32 scale = (cell.rest<u32>(104) >> (4 * g)) & 15;
        out.scale[0] = f16_to_f32(cell.rest<u16>(108)) * static_cast<float>(1 + 2 * scale);
    }
};

// Four values -1, 0 or 1, plus or minus an eighth, in eighths.
__device__ inline u32 in_eighths(u32 values, bool down) {
    const u32 eighths = (values << 3) & 0xf8f8f8f8u;
    return down ? ((eighths ^ 0x80808080u) - 0x01010101u) ^ 0x80808080u : eighths | 0x01010101u;
}

__device__ inline void eight_in_eighths(uint2 values, bool down, u32 *words) {
    words[0] = in_eighths(values.x, down);
    words[1] = in_eighths(values.y, down);
}

__device__ inline float eighths_scale(float d, u32 scale) { return d * static_cast<float>(2 * scale + 1) * 0.125f; }

// 32 bytes of indexes, 8 × (4 × 3 high bits, 3 bits of scale, the sign of the shift), d.
struct IQ1_S : Shape<50, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const u32 low = word_of(cell.chunk(g / 4), g % 4), packed = short_of(cell.chunk(2), g);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 index = ((low >> (8 * i)) & 0xff) | ((packed >> (3 * i)) & 7) << 8;
            eight_in_eighths(eight(book, index), packed >> 15, out.words + 2 * i);
        }
        out.scale[0] = eighths_scale(f16_to_f32(cell.rest<u16>(48)), (packed >> 12) & 7);
    }
};

// 32 bytes of indexes, 32 nibbles of three high bits and the sign of the shift, 4 × (4 × 3 bits of scale, a nibble of d).
struct IQ1_M : Shape<56, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *book, u32 g, Group &out) {
        const u32 low = word_of(cell.chunk(g / 4), g % 4), high = short_of(cell.chunk(2), g);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 nibble = (high >> (4 * i)) & 15;
            eight_in_eighths(eight(book, ((low >> (8 * i)) & 0xff) | (nibble & 7) << 8), nibble & 8, out.words + 2 * i);
        }
        const uint2 scales = cell.rest<uint2>(48);
        const u32 bits = ((scales.x >> 12) & 15) | (scales.x >> 28) << 4 | ((scales.y >> 12) & 15) << 8 | (scales.y >> 28) << 12;
        const float d = f16_to_f32(static_cast<u16>(bits));
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
            out.scale[i] = eighths_scale(d, (short_of(scales, g / 2) >> (3 * (2 * (g % 2) + i))) & 7);
    }
};

} // namespace formats

// What a format's weights are, to the bit, for a group of a row.
template <class F> __device__ inline void values_of(const Cell &cell, const u8 *book, u32 g, float (&values)[GROUP]) {
    if constexpr (F::PARTS == 0) {
        F::values(cell, g, values);
    } else {
        Group group;
        F::group(cell, book, g, group);
#pragma unroll
        for (u32 i = 0; i < GROUP; ++i) {
            const u32 part = F::PARTS == 2 ? i / 16 : 0;
            values[i] = static_cast<float>(static_cast<i8>(group.words[i / 4] >> (8 * (i % 4)))) * group.scale[part];
            if (F::OFFSETS) values[i] += group.offset[part];
        }
    }
}
