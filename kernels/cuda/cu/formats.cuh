// How the blocks of each weight format become integers: groups of 32 columns as 8 words of four signed bytes, with a scale
// and, in some formats, an offset for the group or for each of its halves. A weight is scale · integer + offset.
//
// Matrices lie in strips of 32 rows, row by lane, and in superblocks of 256 columns. What a row has in a superblock is a
// string of bytes: those of its blocks in the file, field by field (all integers, then all scales, say: see
// kernels/cuda/src/linear/layout.rs), so that what is read as a word lies at a multiple of its size. The strings of a strip
// are interleaved: 16 bytes of each row, the next 16 of each row, and so on; what is left behind the last 16 in units of 8, 4
// and 2 bytes. So a warp whose lanes are rows reads whole lines. The rule for all of them: a unit of n bytes at byte o of the
// string lies at 32 · o + n · lane.
#pragma once

#include "common.cuh"

constexpr u32 STRIP = 32;       // rows of a strip: one for each lane
constexpr u32 SUPERBLOCK = 256; // columns of a superblock: the largest block of any format
constexpr u32 GROUP = 32;       // columns of a group: those that activations are rounded together with
constexpr u32 GROUPS = SUPERBLOCK / GROUP;

// What one row has in one superblock.
struct Cell {
    const u8 *strip; // the superblock of the strip
    u32 lane;        // the row

    // Plain loads: the compiler merges those of one chunk for two groups, as it does not with __ldg.
    __device__ uint4 chunk(u32 i) const { return *reinterpret_cast<const uint4 *>(strip + 16 * (STRIP * i + lane)); }

    // The unit of this type at this byte, behind the chunks.
    template <class T> __device__ T rest(u32 offset) const {
        return *reinterpret_cast<const T *>(strip + STRIP * offset + sizeof(T) * lane);
    }
};

// 32 weights of a row.
struct Group {
    u32 words[8];
    float scale[2];  // of all of them; or of the first and the last 16
    float offset[2]; // likewise
};

// Parts of vectors. With an index that is known when compiling these cost nothing.
__device__ inline u32 word_of(uint4 v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ inline u32 word_of(uint2 v, u32 i) { return i == 0 ? v.x : v.y; }
template <class V> __device__ inline u32 byte_of(V v, u32 i) { return (word_of(v, i / 4) >> (8 * (i % 4))) & 0xff; }
template <class V> __device__ inline u32 short_of(V v, u32 i) { return (word_of(v, i / 2) >> (16 * (i % 2))) & 0xffff; }
template <class V> __device__ inline float half_of(V v, u32 i) { return f16_to_f32(static_cast<u16>(short_of(v, i))); }
__device__ inline uint2 pair_of(uint4 v, u32 i) { return i == 0 ? make_uint2(v.x, v.y) : make_uint2(v.z, v.w); }

// Bytes below 128, each less a constant of at most 128.
__device__ inline u32 less(u32 bytes, u32 constant) {
    return ((bytes | 0x80808080u) - 0x01010101u * constant) ^ 0x80808080u;
}

// The low four bits, one to each byte.
__device__ inline u32 bits_apart(u32 bits) { return ((bits & 15) * 0x00204081u) & 0x01010101u; }

// The four pairs of bits of the low byte, one to each byte.
__device__ inline u32 pairs_apart(u32 bits) {
    const u32 nibbles = ((bits & 0xff) | bits << 12) & 0x000f000fu;
    return (nibbles | nibbles << 6) & 0x03030303u;
}

// 16 bytes: columns 0 to 15 in the low nibbles, 16 to 31 in the high ones.
__device__ inline void nibbles(uint4 v, u32 (&words)[8]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        words[i] = word_of(v, i) & 0x0f0f0f0fu;
        words[4 + i] = (word_of(v, i) >> 4) & 0x0f0f0f0fu;
    }
}

// Bit i is bit `place` of column i.
__device__ inline void add_bits(u32 bits, u32 place, u32 (&words)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) words[i] |= bits_apart(bits >> (4 * i)) << place;
}

__device__ inline void less(u32 (&words)[8], u32 constant) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) words[i] = less(words[i], constant);
}

// Word i of two chunks.
__device__ inline u32 word_of(uint4 first, uint4 second, u32 i) { return i < 4 ? word_of(first, i) : word_of(second, i - 4); }

// Sixteen signed bytes by four-bit code.
struct CodeTable {
    u32 words[4];

    // The values of the eight codes of a word: those of its low nibbles, and of its high ones.
    __device__ void look_up(u32 codes, u32 &low, u32 &high) const {
        const u32 first = four(codes), second = four(codes >> 16);
        low = __byte_perm(first, second, 0x6420);
        high = __byte_perm(first, second, 0x7531);
    }

  private:
    // The values of the four codes of the low half.
    __device__ u32 four(u32 codes) const {
        const u32 index = codes & 0x7777;
        const u32 lower = __byte_perm(words[0], words[1], index), upper = __byte_perm(words[2], words[3], index);
        return __byte_perm(lower, upper, 0x3210 | ((codes & 0x8888) >> 1));
    }
};

// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113.
__device__ inline CodeTable iq4_values() { return {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}}; }

// Floats of four bits (a sign, two bits of exponent, one of mantissa), doubled: 0 1 2 3, 4 6 8 12, and their negatives.
__device__ inline CodeTable e2m1_values() { return {{0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}}; }

// As `nibbles`, through a table.
__device__ inline void coded_nibbles(uint4 v, const CodeTable &table, u32 (&words)[8]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) table.look_up(word_of(v, i), words[i], words[4 + i]);
}

// 32 bytes of two-bit codes, at bits `shift` and up.
__device__ inline void two_bits(uint4 first, uint4 second, u32 shift, u32 (&words)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) words[i] = (word_of(first, second, i) >> shift) & 0x03030303u;
}

// Each format: BYTES of a row in a superblock, PARTS of a group that have a scale of their own, whether there are OFFSETS, and
// the group `g` of a cell. `book` is the code book of the formats that have one. Where `g` is known when compiling, chunks that
// two groups share are loaded once.
namespace formats {

template <u32 bytes, u32 parts, bool offsets> struct Shape {
    static constexpr u32 BYTES = bytes;
    static constexpr u32 PARTS = parts;
    static constexpr bool OFFSETS = offsets;
    // Scales have at most 22 significant bits: halves times small integers.
    static constexpr bool SHORT_SCALES = true;
};

// 8 × 16 bytes of nibbles, 8 halves.
struct Q4_0 : Shape<144, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        nibbles(cell.chunk(g), out.words);
        less(out.words, 8);
        out.scale[0] = half_of(cell.chunk(8), g);
    }
};

// A half for the scale and one for the offset.
__device__ inline void scale_and_offset(u32 halves, Group &out) {
    out.scale[0] = f16_to_f32(static_cast<u16>(halves & 0xffff));
    out.offset[0] = f16_to_f32(static_cast<u16>(halves >> 16));
}

// 8 × 16 bytes of nibbles, 8 pairs of halves.
struct Q4_1 : Shape<160, 1, true> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        nibbles(cell.chunk(g), out.words);
        scale_and_offset(word_of(cell.chunk(8 + g / 4), g % 4), out);
    }
};

// 8 × 16 bytes of nibbles, 8 words of fifth bits, 8 halves.
struct Q5_0 : Shape<176, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        nibbles(cell.chunk(g), out.words);
        add_bits(word_of(cell.chunk(8 + g / 4), g % 4), 4, out.words);
        less(out.words, 16);
        out.scale[0] = half_of(cell.chunk(10), g);
    }
};

// 8 × 16 bytes of nibbles, 8 words of fifth bits, 8 pairs of halves.
struct Q5_1 : Shape<192, 1, true> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        nibbles(cell.chunk(g), out.words);
        add_bits(word_of(cell.chunk(8 + g / 4), g % 4), 4, out.words);
        scale_and_offset(word_of(cell.chunk(10 + g / 4), g % 4), out);
    }
};

__device__ inline void signed_bytes(const Cell &cell, u32 g, Group &out) {
    const uint4 first = cell.chunk(2 * g), second = cell.chunk(2 * g + 1);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) out.words[i] = word_of(first, second, i);
}

// 256 signed bytes, 8 halves.
struct Q8_0 : Shape<272, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        signed_bytes(cell, g, out);
        out.scale[0] = half_of(cell.chunk(16), g);
    }
};

// As Q8_0; the sums that the file has beside the scales are not kept.
struct Q8_1 : Q8_0 {};

// 256 signed bytes, a float; the sums that the file has are not kept.
struct Q8_K : Shape<260, 1, false> {
    static constexpr bool SHORT_SCALES = false;
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        signed_bytes(cell, g, out);
        out.scale[0] = __uint_as_float(cell.rest<u32>(256));
    }
};

// 256 bits (1 is +1, 0 is -1), 2 halves.
struct Q1_0 : Shape<36, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        const u32 bits = word_of(cell.chunk(g / 4), g % 4);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) out.words[i] = (bits_apart(bits >> (4 * i)) * 0xfe) ^ 0xffffffffu;
        out.scale[0] = f16_to_f32(static_cast<u16>(cell.rest<u32>(32) >> (16 * (g / 4))));
    }
};

// 256 pairs of bits, neighbours in a byte, 4 halves.
struct Q2_0 : Shape<72, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        const uint2 codes = pair_of(cell.chunk(g / 2), g % 2);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) out.words[i] = less(pairs_apart(byte_of(codes, i)), 1);
        out.scale[0] = half_of(cell.rest<uint2>(64), g / 2);
    }
};

// 16 bytes of scales (low nibbles) and minima (high ones), 64 bytes of pairs of bits, d and dmin.
struct Q2_K : Shape<84, 2, true> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        two_bits(cell.chunk(1 + 2 * (g / 4)), cell.chunk(2 + 2 * (g / 4)), 2 * (g % 4), out.words);
        const uint4 packed = cell.chunk(0);
        const u32 halves = cell.rest<u32>(80);
        const float d = f16_to_f32(static_cast<u16>(halves & 0xffff)), dmin = f16_to_f32(static_cast<u16>(halves >> 16));
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            const u32 byte = byte_of(packed, 2 * g + i);
            out.scale[i] = d * static_cast<float>(byte & 15);
            out.offset[i] = -(dmin * static_cast<float>(byte >> 4));
        }
    }
};

// 32 bytes of third bits, 64 bytes of pairs of bits, 12 bytes of scales of 6 bits, d.
struct Q3_K : Shape<110, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        two_bits(cell.chunk(2 + 2 * (g / 4)), cell.chunk(3 + 2 * (g / 4)), 2 * (g % 4), out.words);
        const uint4 first = cell.chunk(0), second = cell.chunk(1);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) out.words[i] |= ((word_of(first, second, i) >> g) & 0x01010101u) << 2;
        less(out.words, 4);
        const uint2 low = cell.rest<uint2>(96);
        const u32 high = cell.rest<u32>(104);
        const float d = f16_to_f32(cell.rest<u16>(108));
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            const u32 k = 2 * g + i;
            const u32 lower = (byte_of(low, k % 8) >> (4 * (k / 8))) & 15;
            const u32 upper = (high >> (8 * (k % 4) + 2 * (k / 4))) & 3;
            out.scale[i] = d * static_cast<float>(static_cast<int>(lower | upper << 4) - 32);
        }
    }
};

// d, dmin, and 12 bytes of eight scales and eight minima of 6 bits.
__device__ inline void six_bits(uint4 head, u32 g, Group &out) {
    const float d = half_of(head, 0), dmin = half_of(head, 1);
    const u32 j = g % 4;
    const u32 first = byte_of(head, 4 + j), second = byte_of(head, 8 + j), third = byte_of(head, 12 + j);
    const u32 scale = g < 4 ? first & 63 : (third & 15) | (first >> 6) << 4;
    const u32 least = g < 4 ? second & 63 : third >> 4 | (second >> 6) << 4;
    out.scale[0] = d * static_cast<float>(scale);
    out.offset[0] = -(dmin * static_cast<float>(least));
}

// 32 bytes whose nibbles are those of two groups.
__device__ inline void shared_nibbles(const Cell &cell, u32 first_chunk, u32 g, Group &out) {
    const uint4 first = cell.chunk(first_chunk + 2 * (g / 2)), second = cell.chunk(first_chunk + 1 + 2 * (g / 2));
#pragma unroll
    for (u32 i = 0; i < 8; ++i) out.words[i] = (word_of(first, second, i) >> (4 * (g % 2))) & 0x0f0f0f0fu;
}

// The head, 4 × 32 bytes of nibbles.
struct Q4_K : Shape<144, 1, true> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        shared_nibbles(cell, 1, g, out);
        six_bits(cell.chunk(0), g, out);
    }
};

// The head, 32 bytes of fifth bits, 4 × 32 bytes of nibbles.
struct Q5_K : Shape<176, 1, true> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        shared_nibbles(cell, 3, g, out);
        const uint4 first = cell.chunk(1), second = cell.chunk(2);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) out.words[i] |= ((word_of(first, second, i) >> g) & 0x01010101u) << 4;
        six_bits(cell.chunk(0), g, out);
    }
};

// 128 bytes of low nibbles, 64 bytes of pairs of high bits, 16 signed scales, d.
struct Q6_K : Shape<210, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        const u32 half = g / 4, k = g % 4, low = 4 * half + 2 * (k % 2), high = 8 + 2 * half;
        const uint4 low0 = cell.chunk(low), low1 = cell.chunk(low + 1), high0 = cell.chunk(high), high1 = cell.chunk(high + 1);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const u32 lower = (word_of(low0, low1, i) >> (4 * (k / 2))) & 0x0f0f0f0fu;
            const u32 upper = (word_of(high0, high1, i) >> (2 * k)) & 0x03030303u;
            out.words[i] = less(lower | upper << 4, 32);
        }
        const uint4 scales = cell.chunk(12);
        const float d = f16_to_f32(cell.rest<u16>(208));
#pragma unroll
        for (u32 i = 0; i < 2; ++i) out.scale[i] = d * static_cast<float>(static_cast<i8>(byte_of(scales, 2 * g + i)));
    }
};

// As Q4_0, through the table.
struct IQ4_NL : Shape<144, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        coded_nibbles(cell.chunk(g), iq4_values(), out.words);
        out.scale[0] = half_of(cell.chunk(8), g);
    }
};

// 8 × 16 bytes of codes; d, 8 pairs of high bits and 8 nibbles of scales.
struct IQ4_XS : Shape<136, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        coded_nibbles(cell.chunk(g), iq4_values(), out.words);
        const uint2 head = cell.rest<uint2>(128);
        const u32 low = (head.y >> (4 * g)) & 15, high = (head.x >> (16 + 2 * g)) & 3;
        out.scale[0] = half_of(head, 0) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    }
};

// 8 × 16 bytes of codes, 8 exponents: e stands for 2^(e - 128) with the doubled values; the two smallest are subnormal.
struct MXFP4 : Shape<136, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        coded_nibbles(cell.chunk(g), e2m1_values(), out.words);
        const u32 e = byte_of(cell.rest<uint2>(128), g);
        out.scale[0] = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
};

// Half of what a byte of four bits of exponent and three of mantissa stands for; 0x7f counts as zero.
__device__ inline float half_of_ue4m3(u32 code) {
    const u32 exponent = (code >> 3) & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return 0.0f;
    if (exponent == 0) return static_cast<float>(mantissa) * (1.0f / 1024.0f);
    return __uint_as_float((exponent + 119) << 23 | mantissa << 20);
}

// 16 × 8 bytes of codes (8 columns in the low nibbles, 8 in the high ones), 16 scales.
struct NVFP4 : Shape<144, 2, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        const uint4 codes = cell.chunk(g);
        const CodeTable table = e2m1_values();
        table.look_up(codes.x, out.words[0], out.words[2]);
        table.look_up(codes.y, out.words[1], out.words[3]);
        table.look_up(codes.z, out.words[4], out.words[6]);
        table.look_up(codes.w, out.words[5], out.words[7]);
        const uint4 scales = cell.chunk(8);
#pragma unroll
        for (u32 i = 0; i < 2; ++i) out.scale[i] = half_of_ue4m3(byte_of(scales, 2 * g + i));
    }
};

// Digit `d` of base 3, the most significant one is 0, of each of four bytes, less one. A byte is a fraction of 256: times 3^d
// brings the digit to where times 3 shifts it out at the top.
__device__ inline u32 digits(u32 bytes, u32 d) {
    const u32 power = d == 0 ? 1 : d == 1 ? 3 : d == 2 ? 9 : d == 3 ? 27 : 81;
    const u32 even = ((bytes & 0x00ff00ffu) * power) & 0x00ff00ffu, odd = (((bytes >> 8) & 0x00ff00ffu) * power) & 0x00ff00ffu;
    const u32 digits = ((even * 3) >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
    return less(digits, 1);
}

// 48 bytes of five digits, 4 of four digits, d. The digits of a rank of bytes 0 to 31 make a group, those of bytes 32 to 47
// half a group, and those of the last four bytes 4 columns.
struct TQ1_0 : Shape<54, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        out.scale[0] = f16_to_f32(cell.rest<u16>(52));
        if (g < 5) {
            const uint4 first = cell.chunk(0), second = cell.chunk(1);
#pragma unroll
            for (u32 i = 0; i < 8; ++i) out.words[i] = digits(word_of(first, second, i), g);
            return;
        }
        const uint4 third = cell.chunk(2);
        const u32 last = cell.rest<u32>(48);
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            out.words[i] = digits(word_of(third, i), 2 * (g - 5));
            out.words[4 + i] = g < 7 ? digits(word_of(third, i), 2 * (g - 5) + 1) : digits(last, i);
        }
    }
};

// 64 bytes of pairs of bits, d.
struct TQ2_0 : Shape<66, 1, false> {
    static __device__ void group(const Cell &cell, const u8 *, u32 g, Group &out) {
        two_bits(cell.chunk(2 * (g / 4)), cell.chunk(1 + 2 * (g / 4)), 2 * (g % 4), out.words);
        less(out.words, 1);
        out.scale[0] = f16_to_f32(cell.rest<u16>(64));
    }
};

// Formats of floats have no integers: 32 values of a row, of MANTISSA significant bits.
struct F32 : Shape<1024, 0, false> {
    static constexpr u32 MANTISSA = 24;
    static __device__ void values(const Cell &cell, u32 g, float (&out)[GROUP]) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const uint4 four = cell.chunk(8 * g + i);
#pragma unroll
            for (u32 k = 0; k < 4; ++k) out[4 * i + k] = __uint_as_float(word_of(four, k));
        }
    }
};

struct F16 : Shape<512, 0, false> {
    static constexpr u32 MANTISSA = 11;
    static __device__ void values(const Cell &cell, u32 g, float (&out)[GROUP]) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const uint4 eight = cell.chunk(4 * g + i);
#pragma unroll
            for (u32 k = 0; k < 8; ++k) out[8 * i + k] = half_of(eight, k);
        }
    }
};

struct BF16 : Shape<512, 0, false> {
    static constexpr u32 MANTISSA = 8;
    static __device__ void values(const Cell &cell, u32 g, float (&out)[GROUP]) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const uint4 eight = cell.chunk(4 * g + i);
#pragma unroll
            for (u32 k = 0; k < 8; ++k) out[8 * i + k] = bf16_to_f32(static_cast<u16>(short_of(eight, k)));
        }
    }
};

} // namespace formats
