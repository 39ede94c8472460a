// Rows of a table as floats: what the formats define, to the bit. The table lies as matrices do, so that one in memory serves as
// table and as output head. FORMAT is its format.
#include "linear.cuh"

typedef formats::FORMAT Format;

constexpr u32 THREADS = 64;

// Row `ids[i]` of a table to row i; rows that the table does not have become zeros. Blocks: rows, times parts of a row; a thread
// has 32 columns.
KERNEL __launch_bounds__(THREADS) embed(Product p) {
    const u32 g = blockIdx.y * THREADS + threadIdx.x, id = p.ids[blockIdx.x];
    if (g * GROUP >= p.columns) return;
    float *out = p.out + static_cast<u64>(blockIdx.x) * p.columns + g * GROUP;
    const u32 count = min(GROUP, p.columns - g * GROUP);
    if (id >= p.width) {
        for (u32 i = 0; i < count; ++i) out[i] = 0.0f;
        return;
    }
    const u64 superblock = static_cast<u64>(id / STRIP) * p.superblocks + g / GROUPS;
    const Cell cell = {p.weights + superblock * (Format::BYTES * STRIP), id % STRIP};
    float values[GROUP];
    values_of<Format>(cell, p.book, g % GROUPS, values);
#pragma unroll
    for (u32 i = 0; i < GROUP; ++i)
        if (i < count) out[i] = values[i];
}
