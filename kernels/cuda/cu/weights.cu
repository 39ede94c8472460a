// Brings rows of weights from the order of the file into that of formats.cuh.
#include "common.cuh"

constexpr u32 STRIP = 32;

// What a row's superblock is made of.
struct Layout {
    u32 bytes;            // of a row in a superblock, here
    u32 file_bytes;       // of a row in a superblock, in the file
    u32 row_bytes;        // of a row in the file
    u32 superblocks;
    const u16 *order;     // [bytes]: which byte of the file's superblock
};

// Byte `at` of a strip's superblock: the row it is of, and which byte of the row's string.
struct Place {
    u32 row, byte;
};

__device__ inline Place place_of(u32 bytes, u32 at) {
    u32 unit = 16, start = 0, end = bytes / 16 * 16;
    while (at >= STRIP * end) {
        unit /= 2;
        start = end;
        end += (bytes - start) / unit * unit;
    }
    const u32 within = at - STRIP * start;
    const u32 round = within / (STRIP * unit), rest = within % (STRIP * unit);
    return {rest / unit, start + round * unit + rest % unit};
}

// Interleaves `rows` rows. Blocks: parts of a superblock, times superblocks, times strips. A thread writes four bytes. Where there
// is no such row, or no such block of a row, zeros are written.
KERNEL interleave(const u8 *file, u32 *out, u32 rows, Layout layout) {
    const u32 word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= layout.bytes * STRIP / 4) return;
    u32 bytes = 0;
    for (u32 i = 0; i < 4; ++i) {
        const Place place = place_of(layout.bytes, 4 * word + i);
        const u32 row = blockIdx.z * STRIP + place.row;
        const u32 byte = blockIdx.y * layout.file_bytes + layout.order[place.byte];
        if (row >= rows || byte >= layout.row_bytes) continue;
        bytes |= static_cast<u32>(file[static_cast<u64>(row) * layout.row_bytes + byte]) << (8 * i);
    }
    const u64 superblock = static_cast<u64>(blockIdx.z) * layout.superblocks + blockIdx.y;
    out[superblock * (layout.bytes * STRIP / 4) + word] = bytes;
}
