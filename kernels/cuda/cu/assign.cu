// Which rows meet which expert: rows are put together by expert, in order, and cut into tiles.
#include "common.cuh"

constexpr u32 THREADS = 256;

// How many of `ids` are this expert. Blocks: experts.
KERNEL __launch_bounds__(THREADS) count_members(const u32 *ids, u32 rows, u32 *counts) {
    __shared__ u32 found[THREADS / WARP];
    u32 count = 0;
    for (u32 start = 0; start < rows; start += THREADS) {
        const u32 row = start + threadIdx.x;
        count += static_cast<u32>(__popc(__ballot_sync(FULL, row < rows && ids[row] == blockIdx.x)));
    }
    if (threadIdx.x % WARP == 0) found[threadIdx.x / WARP] = count;
    __syncthreads();
    if (threadIdx.x > 0) return;
    count = 0;
    for (u32 i = 0; i < THREADS / WARP; ++i) count += found[i];
    counts[blockIdx.x] = count;
}

// Writes the members of this expert behind those of the experts before it, and its tiles of `tile_rows` behind theirs: {expert, its
// first member, how many, 0}. Blocks: experts.
KERNEL __launch_bounds__(THREADS) assign(const u32 *ids, u32 rows, const u32 *counts, u32 tile_rows, u32 *members, uint4 *tiles,
                                         u32 *tile_count) {
    __shared__ u32 warps[2][THREADS / WARP];
    const u32 expert = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    // Members and tiles of the experts before this one.
    u32 before[2] = {0, 0};
    for (u32 i = threadIdx.x; i < expert; i += THREADS) {
        before[0] += counts[i];
        before[1] += (counts[i] + tile_rows - 1) / tile_rows;
    }
    for (u32 k = 0; k < 2; ++k) {
        for (int mask = WARP / 2; mask > 0; mask /= 2) before[k] += __shfl_xor_sync(FULL, before[k], mask);
        if (lane == 0) warps[k][warp] = before[k];
    }
    __syncthreads();
    u32 first = 0, tile = 0;
    for (u32 i = 0; i < THREADS / WARP; ++i) {
        first += warps[0][i];
        tile += warps[1][i];
    }
    __syncthreads();
    const u32 count = counts[expert], own_tiles = (count + tile_rows - 1) / tile_rows;
    for (u32 i = threadIdx.x; i < own_tiles; i += THREADS)
        tiles[tile + i] = make_uint4(expert, first + i * tile_rows, min(tile_rows, count - i * tile_rows), 0);
    if (expert + 1 == gridDim.x && threadIdx.x == 0) *tile_count = tile + own_tiles;
    for (u32 start = 0; start < rows; start += THREADS) {
        const u32 row = start + threadIdx.x;
        const bool is_member = row < rows && ids[row] == expert;
        const u32 ballot = __ballot_sync(FULL, is_member);
        if (lane == 0) warps[0][warp] = static_cast<u32>(__popc(ballot));
        __syncthreads();
        u32 place = first, all = 0;
        for (u32 i = 0; i < THREADS / WARP; ++i) {
            if (i < warp) place += warps[0][i];
            all += warps[0][i];
        }
        if (is_member) members[place + static_cast<u32>(__popc(ballot & ((1u << lane) - 1)))] = row;
        first += all;
        __syncthreads();
    }
}
