// Writing rows to states, and copying rows between pages.
#include "state.cuh"

// Threads of a block: one entry each of what heads usually have, and whole warps.
constexpr u32 STORE_THREADS = 128;

// Where head `head` of row `row` of the step goes; null if nowhere.
struct Target {
    u8 *codes;
    u16 *scales;
};

__device__ inline Target target_of(const Step &step, const State &state, u32 row, u32 head) {
    u32 index = row, sequence = 0;
    if (state.tables) {
        sequence = step.row_sequence[row];
        if (sequence == NONE) return {nullptr, nullptr};
        index = step.row_index[row];
    }
    u8 *page = state_page(state, sequence, index);
    if (!page) return {nullptr, nullptr};
    const u64 at = static_cast<u64>(index % state.page_rows) * state.heads + head;
    return {page + state.codes + at * kv_code_bytes(state.type, state.dim),
            reinterpret_cast<u16 *>(page + state.scales) + at * kv_scales(state.type, state.dim)};
}

// Rows of floats, `pitch` from one to the next, into a state of f32, f16, bf16 or q8_0. A warp takes a run of 32 entries of a
// head: `runs` of them make a head.
KERNEL __launch_bounds__(STORE_THREADS) store_plain(const float *x, u32 pitch, Step step, State state, u32 runs) {
    const u64 unit = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    const u32 lane = threadIdx.x % WARP;
    const u32 run = static_cast<u32>(unit % runs), head = static_cast<u32>(unit / runs % state.heads);
    const u64 row = unit / runs / state.heads;
    if (row >= step.rows) return;
    const Target to = target_of(step, state, static_cast<u32>(row), head);
    if (!to.codes) return;
    const u32 i = run * KV_BLOCK + lane;
    const bool is_there = i < state.dim;
    const float entry = is_there ? x[row * pitch + head * state.dim + i] : 0.0f;
    if (state.type == KV_Q8_0) {
        // The greatest takes the code 127. What is no number is passed over.
        const u16 bits = f32_to_f16(warp_max(fabsf(entry)) / 127.0f);
        const float scale = f16_to_f32(bits), inverse = scale > 0 ? 1.0f / scale : 0.0f;
        const float code = rintf(fmaxf(-127.0f, fminf(127.0f, entry * inverse)));
        if (is_there) to.codes[i] = static_cast<u8>(static_cast<i8>(code));
        if (lane == 0) to.scales[run] = bits;
    } else if (is_there) {
        if (state.type == KV_F32) reinterpret_cast<float *>(to.codes)[i] = entry;
        if (state.type == KV_F16) reinterpret_cast<u16 *>(to.codes)[i] = f32_to_f16(entry);
        if (state.type == KV_BF16) reinterpret_cast<u16 *>(to.codes)[i] = f32_to_bf16(entry);
    }
}

// As store_plain, into a state of turbo4 or turbo3. A block takes one head of one row; shared memory holds it, filled up, as
// floats, and behind them its codes, a byte each.
template <u32 TYPE> __device__ inline void store_turbo(const float *x, u32 pitch, const Step &step, const State &state) {
    constexpr u32 BITS = TYPE == KV_TURBO4 ? 4 : 3;
    __shared__ float scratch[WARP];
    const u32 row = blockIdx.x, head = blockIdx.y;
    const Target to = target_of(step, state, row, head);
    if (!to.codes) return;
    const u32 width = kv_width(TYPE, state.dim);
    float *entries = dynamic_shared<float>();
    u8 *codes = reinterpret_cast<u8 *>(entries + width);
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        entries[i] = i < state.dim ? x[static_cast<u64>(row) * pitch + head * state.dim + i] : 0.0f;
    }
    rotate_head(entries, width);
    __syncthreads();
    float squares = 0;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares = fmaf(entries[i], entries[i], squares);
    const float spread = sqrtf(block_sum(squares, scratch) / static_cast<float>(width));
    // The scale with which the levels are nearest to the entries.
    float products = 0, levels = 0;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        u32 code = 0;
#pragma unroll
        for (u32 k = 0; k + 1 < (1u << BITS); ++k) {
            const float bound = (kv_level<TYPE>(k) + kv_level<TYPE>(k + 1)) * 0.5f;
            code += bound * spread < entries[i];
        }
        codes[i] = static_cast<u8>(code);
        const float level = kv_level<TYPE>(code);
        products = fmaf(entries[i], level, products);
        levels = fmaf(level, level, levels);
    }
    products = block_sum(products, scratch);
    levels = block_sum(levels, scratch);
    for (u32 group = threadIdx.x; group < width / 8; group += blockDim.x) {
        u32 word = 0;
        for (u32 e = 0; e < 8; ++e) word |= static_cast<u32>(codes[group * 8 + e]) << (e * BITS);
        for (u32 b = 0; b < BITS; ++b) to.codes[group * BITS + b] = static_cast<u8>(word >> (8 * b));
    }
    if (threadIdx.x == 0) {
        // A head with an entry that is no number, or whose scale no half float holds, has NaN as its scale.
        const u16 bits = f32_to_f16(products / levels);
        to.scales[0] = (bits & 0x7c00) == 0x7c00 ? 0x7e00 : bits;
    }
}

KERNEL __launch_bounds__(STORE_THREADS) store_turbo4(const float *x, u32 pitch, Step step, State state) {
    store_turbo<KV_TURBO4>(x, pitch, step, state);
}

KERNEL __launch_bounds__(STORE_THREADS) store_turbo3(const float *x, u32 pitch, Step step, State state) {
    store_turbo<KV_TURBO3>(x, pitch, step, state);
}

// Heads of `dim` entries, rotated and filled up to `width`: queries that meet rotated keys. A block takes a head.
KERNEL __launch_bounds__(STORE_THREADS) rotate_queries(const float *x, float *out, u32 dim, u32 width) {
    float *head = dynamic_shared<float>();
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        head[i] = i < dim ? x[static_cast<u64>(blockIdx.x) * dim + i] : 0.0f;
    }
    rotate_head(head, width);
    __syncthreads();
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) out[static_cast<u64>(blockIdx.x) * width + i] = head[i];
}

// What a row is made of in a page: rows of `row_bytes` from `offset` on. The offset is a multiple of 16.
struct Plane {
    u32 offset;
    u32 row_bytes;
};

// One copy: the first `rows` rows of a page.
struct PageRows {
    u32 from;
    u32 to;
    u32 rows;
};

__device__ inline void copy_bytes(const u8 *from, u8 *to, u64 bytes) {
    const u64 whole = bytes / 16;
    for (u64 i = threadIdx.x; i < whole; i += blockDim.x) {
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
    }
    for (u64 i = whole * 16 + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

// Copies the first rows of pages to other pages. A block takes one plane (x) of one copy (y).
KERNEL copy_pages(u8 *pool, u64 page_bytes, const Plane *planes, const PageRows *copies) {
    const Plane plane = planes[blockIdx.x];
    const PageRows copy = copies[blockIdx.y];
    if (copy.from == copy.to) return;
    copy_bytes(pool + copy.from * page_bytes + plane.offset, pool + copy.to * page_bytes + plane.offset,
               static_cast<u64>(plane.row_bytes) * copy.rows);
}

// Copies the first rows of a page to packed memory, or back: plane after plane, each from the next multiple of 16 bytes on. A
// block takes a plane.
KERNEL pack_page(u8 *page, const Plane *planes, u8 *packed, u32 rows, u32 unpack) {
    u64 at = 0;
    for (u32 i = 0; i < blockIdx.x; ++i) at += (static_cast<u64>(planes[i].row_bytes) * rows + 15) / 16 * 16;
    const Plane plane = planes[blockIdx.x];
    u8 *there = page + plane.offset, *here = packed + at;
    copy_bytes(unpack ? here : there, unpack ? there : here, static_cast<u64>(plane.row_bytes) * rows);
}
