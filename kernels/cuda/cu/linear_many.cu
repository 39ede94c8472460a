// Quantized matrices times many rows: tiles in shared memory, by the tensor cores from compute capability 7.5, by dot products
// of four bytes before that. Both compute the same integers, so the same bits.
//
// A block yields 128 outputs of TOKENS rows. It goes through the columns in stages of 64: its warps unpack 128 × 64 weights to
// bytes for the next stage while the tensor cores work on this one. FORMAT is the weights' format.
#include "linear.cuh"
#include "mma.cuh"

typedef formats::FORMAT Format;

constexpr u32 THREADS = 256;                // 8 warps: 4 along the outputs, each with a strip, times 2 along the rows
constexpr u32 OUTPUTS = 4 * STRIP;          // of a block
constexpr u32 STAGE_GROUPS = 2;             // groups of a stage: with 4 strips a task of unpacking for each warp
constexpr u32 STAGES = GROUPS / STAGE_GROUPS; // of a superblock
constexpr u32 OFFSET_PARTS = Format::OFFSETS ? Format::PARTS : 1;

// A stage: with 64 rows 8 KiB of weights, 4 KiB of activations, at most 5 KiB of scales; two of them fit the 48 KiB that every card
// has. Word i of row r lies at i ^ (r & 4), so that neither 8 lanes that read a word of 8 rows nor 8 lanes that write 4 words of
// 8 rows meet in a bank.
template <u32 TOKENS> struct Stage {
    u32 weights[STAGE_GROUPS][OUTPUTS][8];
    u32 x[STAGE_GROUPS][TOKENS][8];
    float scale[STAGE_GROUPS][Format::PARTS][OUTPUTS];
    float offset[STAGE_GROUPS][OFFSET_PARTS][OUTPUTS];
    float x_scale[STAGE_GROUPS][TOKENS];
    float2 x_sums[STAGE_GROUPS][TOKENS];
};

__device__ inline u32 swizzled(u32 row, u32 word) { return word ^ (row & 4); }

// What a thread computes: outputs `row + 8 i` of its warp's 32 for tokens `8 n + token` and the next one, of each run n of 8.
struct Spot {
    u32 row;   // lane / 4
    u32 token; // 2 · (lane % 4)
};

// The weights of a group for a thread's dots.
struct Weights {
#if ARCH >= 75
    u32 words[2][4]; // two tiles of 16 outputs

    __device__ void load(const u32 (*rows)[8], u32 first, const Spot &spot) {
        const u32 q = spot.token / 2;
#pragma unroll
        for (u32 tile = 0; tile < 2; ++tile) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 row = first + 16 * tile + 8 * (i % 2) + spot.row;
                words[tile][i] = rows[row][swizzled(row, q + 4 * (i / 2))];
            }
        }
    }

    // The dots of 4 outputs and 2 tokens of a run, in one part or two.
    __device__ void dots(const u32 (*x)[8], u32 run, const Spot &spot, int (&out)[2][4][2]) const {
        const u32 token = run + spot.row, q = spot.token / 2;
        const u32 b0 = x[token][swizzled(token, q)], b1 = x[token][swizzled(token, q + 4)];
#pragma unroll
        for (u32 tile = 0; tile < 2; ++tile) {
            int c[2][4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) c[0][i] = c[1][i] = DOT_START;
            if (Format::PARTS == 1) {
                mma_16x8x32(c[0], words[tile], b0, b1);
            } else {
                mma_16x8x16(c[0], words[tile][0], words[tile][1], b0);
                mma_16x8x16(c[1], words[tile][2], words[tile][3], b1);
            }
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                out[0][2 * tile + i / 2][i % 2] = c[0][i];
                out[1][2 * tile + i / 2][i % 2] = c[1][i];
            }
        }
    }
#else
    u32 words[4][8];

    __device__ void load(const u32 (*rows)[8], u32 first, const Spot &spot) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 row = first + 8 * i + spot.row;
#pragma unroll
            for (u32 k = 0; k < 8; ++k) words[i][k] = rows[row][swizzled(row, k)];
        }
    }

    __device__ void dots(const u32 (*x)[8], u32 run, const Spot &spot, int (&out)[2][4][2]) const {
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const u32 token = run + spot.token + j;
#pragma unroll
            for (u32 i = 0; i < 4; ++i) out[0][i][j] = out[1][i][j] = DOT_START;
#pragma unroll
            for (u32 k = 0; k < 8; ++k) {
                const int word = static_cast<int>(x[token][swizzled(token, k)]);
                const u32 part = Format::PARTS == 2 ? k / 4 : 0;
#pragma unroll
                for (u32 i = 0; i < 4; ++i) out[part][i][j] = dot4(static_cast<int>(words[i][k]), word, out[part][i][j]);
            }
        }
    }
#endif
};

// Adds a group's terms to the sums of a superblock.
template <u32 TOKENS, u32 N>
__device__ void add_group(const Stage<TOKENS> &stage, u32 g, u32 first_row, u32 first_token, const Spot &spot, float (&sums)[4][N]) {
    Weights weights;
    weights.load(stage.weights[g], first_row, spot);
    float scale[2][4], start[4], offset[4][2];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
#pragma unroll
        for (u32 part = 0; part < Format::PARTS; ++part) {
            scale[part][i] = stage.scale[g][part][first_row + spot.row + 8 * i];
            if (Format::OFFSETS) offset[i][part] = stage.offset[g][part % OFFSET_PARTS][first_row + spot.row + 8 * i];
        }
        start[i] = scaled_start<Format>(scale[0][i]);
    }
#pragma unroll
    for (u32 run = 0; run < N / 2; ++run) {
        int dots[2][4][2];
        weights.dots(stage.x[g], first_token + 8 * run, spot, dots);
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const u32 token = first_token + 8 * run + spot.token + j;
            const float x_scale = stage.x_scale[g][token];
            float2 x_sums = make_float2(0.0f, 0.0f);
            if (Format::OFFSETS) x_sums = stage.x_sums[g][token];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                float t = scaled_dot<Format>(dots[0][i][j], scale[0][i], start[i]);
                if (Format::PARTS == 2) t = fmaf(dot_value(dots[1][i][j]), scale[1][i], t);
                sums[i][2 * run + j] = finish_group<Format>(offset[i], t, x_sums, x_scale, sums[i][2 * run + j]);
            }
        }
    }
}

// Which rows a block multiplies, and by which matrix.
struct Batch {
    u32 matrix;
    u32 first; // of the rows; of `members`, if rows are grouped
    u32 count;
};

template <bool GROUPED> __device__ inline Item item_of_batch(const Product &p, const Batch &batch, u32 i) {
    const u32 at = batch.first + i;
    return GROUPED ? item_of(p, p.members[at], 0) : item_of(p, at, batch.matrix);
}

// What a thread copies of the activations: 16 bytes of a group, and a scale or a pair of sums, of one stage after another.
template <u32 TOKENS, bool GROUPED> struct Copies {
    const u8 *codes;
    const float *scales;
    const float2 *sums;

    __device__ Copies(const Product &p, const Batch &batch) {
        const u32 item = min(threadIdx.x / 4 % TOKENS, batch.count - 1);
        const u64 groups = static_cast<u64>(p.superblocks) * GROUPS;
        codes = static_cast<const u8 *>(p.x) + item_of_batch<GROUPED>(p, batch, item).x * groups * GROUP;
        const u32 token = min(threadIdx.x % TOKENS, batch.count - 1);
        const u64 row = item_of_batch<GROUPED>(p, batch, token).x * groups;
        scales = p.scales + row;
        sums = p.sums + row;
    }

    // Of the groups from `g` on.
    __device__ void start(Stage<TOKENS> &stage, u32 g) const {
        if (threadIdx.x < 4 * TOKENS) {
            // Four neighbouring threads copy 64 neighbouring bytes.
            const u32 token = threadIdx.x / 4, piece = threadIdx.x % 4;
            u32 *to = &stage.x[piece / 2][token][swizzled(token, 4 * (piece % 2))];
            copy_async<16>(to, codes + static_cast<u64>(g) * GROUP + 16 * piece);
        }
        const u32 task = threadIdx.x / TOKENS, token = threadIdx.x % TOKENS;
        if (task < STAGE_GROUPS) {
            copy_async<4>(&stage.x_scale[task][token], scales + g + task);
        } else if (task < 2 * STAGE_GROUPS && Format::OFFSETS) {
            copy_async<8>(&stage.x_sums[task - STAGE_GROUPS][token], sums + g + task - STAGE_GROUPS);
        }
    }
};

// Writes what a warp has unpacked: a group of a strip.
template <u32 TOKENS> __device__ void put(Stage<TOKENS> &stage, const Group &group) {
    const u32 g = threadIdx.x / (THREADS / 2), row = threadIdx.x % OUTPUTS;
    uint4 *to = reinterpret_cast<uint4 *>(stage.weights[g][row]);
    const u32 (&words)[8] = group.words;
    to[swizzled(row, 0) / 4] = make_uint4(words[0], words[1], words[2], words[3]);
    to[swizzled(row, 4) / 4] = make_uint4(words[4], words[5], words[6], words[7]);
#pragma unroll
    for (u32 part = 0; part < Format::PARTS; ++part) {
        stage.scale[g][part][row] = group.scale[part];
        if (Format::OFFSETS) stage.offset[g][part % OFFSET_PARTS][row] = group.offset[part];
    }
}

// Blocks: runs of TOKENS rows, or tiles; times runs of 128 outputs; times matrices of the stack.
template <u32 TOKENS, bool GROUPED> __device__ void many(const Product &p) {
    __shared__ __align__(16) Stage<TOKENS> stages[2];
    Batch batch;
    if (GROUPED) {
        if (blockIdx.x >= *p.tile_count) return;
        const uint4 tile = p.tiles[blockIdx.x];
        batch = {tile.x, tile.y, tile.z};
    } else {
        const u32 items = p.rows << p.twice;
        batch = {blockIdx.z, blockIdx.x * TOKENS, min(TOKENS, items - blockIdx.x * TOKENS)};
    }
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u32 strip = min(blockIdx.y * (OUTPUTS / STRIP) + warp % 4, strips_of(p) - 1);
    constexpr u32 STRIP_BYTES = Format::BYTES * STRIP;
    Cell cell = {p.weights + batch.matrix * p.matrix_bytes + static_cast<u64>(strip) * p.superblocks * STRIP_BYTES, lane};
    const Copies<TOKENS, GROUPED> copies(p, batch);
    const Spot spot = {lane / 4, 2 * (lane % 4)};
    constexpr u32 N = TOKENS / 8;
    const u32 first_row = warp % 4 * STRIP, first_token = warp / 4 * (TOKENS / 2);
    float totals[4][N], sums[4][N];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
#pragma unroll
        for (u32 j = 0; j < N; ++j) totals[i][j] = sums[i][j] = 0.0f;
    }
    Group group;
    copies.start(stages[0], 0);
    Format::group(cell, p.book, warp / 4, group);
    put(stages[0], group);
    wait_for_copies();
    __syncthreads();
    const u32 count = p.superblocks * STAGES;
    for (u32 s = 0; s < count; ++s) {
        const u32 next = s + 1;
        if (next < count) {
            copies.start(stages[next % 2], next * STAGE_GROUPS);
            if (next % STAGES == 0) cell.strip += STRIP_BYTES;
            Format::group(cell, p.book, next % STAGES * STAGE_GROUPS + warp / 4, group);
        }
        // One after the other: both at once would not fit the registers.
#pragma unroll 1
        for (u32 g = 0; g < STAGE_GROUPS; ++g) add_group(stages[s % 2], g, first_row, first_token, spot, sums);
        if (next % STAGES == 0) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                for (u32 j = 0; j < N; ++j) {
                    totals[i][j] += sums[i][j];
                    sums[i][j] = 0.0f;
                }
            }
        }
        if (next < count) put(stages[next % 2], group);
        wait_for_copies();
        __syncthreads();
    }
#pragma unroll
    for (u32 j = 0; j < N; ++j) {
        const u32 token = first_token + j / 2 * 8 + spot.token + j % 2;
        // Pairs of rows are neighbours, and both this thread's.
        if (token >= batch.count || (p.twice && j % 2)) continue;
        const u32 row = item_of_batch<GROUPED>(p, batch, token).out;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 column = blockIdx.y * OUTPUTS + first_row + spot.row + 8 * i;
            const float value = p.twice ? totals[i][j] + totals[i][j | 1] : totals[i][j];
            if (column < p.width) write(p, row, column, batch.matrix, value);
        }
    }
}

// With tensor cores 128 registers at most, for two blocks on a multiprocessor: with 64 rows up to 40 of a thread's words are then
// spilled in the formats with two scales for a group, outside the innermost loop. Without them the words of four outputs would
// not fit.
constexpr u32 BLOCKS = ARCH >= 75 ? 2 : 1;

KERNEL __launch_bounds__(THREADS, BLOCKS) many_16(Product p) { many<16, false>(p); }
KERNEL __launch_bounds__(THREADS, BLOCKS) many_32(Product p) { many<32, false>(p); }
KERNEL __launch_bounds__(THREADS, BLOCKS) many_64(Product p) { many<64, false>(p); }
KERNEL __launch_bounds__(THREADS, BLOCKS) grouped_16(Product p) { many<16, true>(p); }
KERNEL __launch_bounds__(THREADS, BLOCKS) grouped_32(Product p) { many<32, true>(p); }
KERNEL __launch_bounds__(THREADS, BLOCKS) grouped_64(Product p) { many<64, true>(p); }
