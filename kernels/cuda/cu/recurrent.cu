// Recurrences: each reads the value in slot `from`, takes in the accepted ones of the rows kept there, computes the step's
// rows in order, and leaves in slot `to` the value after the rows that are certain and the inputs of those that are tentative.
// A row's arithmetic is the same whether it is replayed, certain or tentative, first or last in its step.
//
// Those over heads keep a part of the value in registers: a block takes COLUMNS columns of a head, SHARERS threads a column.
// PER is how many entries of a column a thread has, a multiple of 4; in a slot a column is SHARERS × PER entries, zeros behind
// its last.
#include "common.cuh"

#ifndef PER
#define PER 4
#endif

constexpr u32 THREADS = 128;

// Threads that share a column: with fewer, their chains of sums would be longer than a card hides; with more, exchanging sums
// would take longer than summing up.
constexpr u32 SHARERS = 4;
constexpr u32 COLUMNS = THREADS / SHARERS;
constexpr u32 COLUMN = SHARERS * PER;

// Tokens whose inputs are brought to shared memory together.
constexpr u32 CHUNK = 8;

// A sequence's rows in a step.
struct Run {
    u32 first;    // row of the step at which the sequence begins
    u32 accepted; // kept rows that are taken in before
    u32 certain;  // rows that are taken in for good
    u32 rows;     // all its rows
};

__device__ inline Run run_of(const Step &step, const Recurrence &r, u32 sequence) {
    const u32 first = step.first_row[sequence], rows = step.first_row[sequence + 1] - first;
    const u32 from = r.from[sequence];
    return {first, from == NONE ? 0 : r.accepted[sequence], rows - r.tentative[sequence], rows};
}

// Entry i of a thread's part of a column: runs of 4 entries go around among the threads.
__device__ inline u32 entry_of(u32 i) { return i / 4 * (4 * SHARERS) + threadIdx.x % SHARERS * 4 + i % 4; }

__device__ inline void load_column(const float *column, float (&state)[PER]) {
#pragma unroll
    for (u32 i = 0; i < PER; i += 4) {
        const float4 run = column ? *reinterpret_cast<const float4 *>(column + entry_of(i)) : make_float4(0, 0, 0, 0);
        state[i] = run.x, state[i + 1] = run.y, state[i + 2] = run.z, state[i + 3] = run.w;
    }
}

__device__ inline void store_column(float *column, const float (&state)[PER]) {
#pragma unroll
    for (u32 i = 0; i < PER; i += 4) {
        *reinterpret_cast<float4 *>(column + entry_of(i)) = make_float4(state[i], state[i + 1], state[i + 2], state[i + 3]);
    }
}

// The sum over the threads that share a column.
__device__ inline float column_sum(float x) {
    for (u32 mask = 1; mask < SHARERS; mask *= 2) x += __shfl_xor_sync(FULL, x, static_cast<int>(mask));
    return x;
}

// A thread's sum of products of two columns.
__device__ inline float products(const float *a, const float (&b)[PER]) {
    float even = 0, odd = 0;
#pragma unroll
    for (u32 i = 0; i < PER; i += 4) {
        const float4 run = *reinterpret_cast<const float4 *>(a + entry_of(i));
        even = fmaf(run.x, b[i], even), odd = fmaf(run.y, b[i + 1], odd);
        even = fmaf(run.z, b[i + 2], even), odd = fmaf(run.w, b[i + 3], odd);
    }
    return even + odd;
}

// Brings a vector of a token to shared memory, filled up.
__device__ inline void stage(float *to, const float *from, u32 entries, float fill) {
    for (u32 i = threadIdx.x; i < COLUMN; i += THREADS) to[i] = i < entries ? from[i] : fill;
}

// The gated delta rule. Per value head, with S [key_dim, value_dim], and q, k of key head `head mod key_heads`:
// S ← diag(e^decay)·S; δ = beta·(v - Sᵀk); S ← S + k·δᵀ; o = scale · Sᵀq. In a slot: [heads][value_dim][COLUMN].
// What is kept of a row: k, decay, v, beta.
struct Delta {
    const float *q;     // [rows][key_heads][key_dim]
    const float *k;     // [rows][key_heads][key_dim]
    const float *v;     // [rows][heads][value_dim]
    const float *decay; // [rows][heads], or with per_channel [rows][heads][key_dim]
    const float *beta;  // [rows][heads]
    float *out;         // [rows][heads][value_dim]
    u32 key_heads;
    u32 heads;
    u32 key_dim;
    u32 value_dim;
    u32 per_channel;
    float scale;
};

// A block takes columns (x) of a head (y) of a sequence (z).
KERNEL __launch_bounds__(THREADS) delta_rule(Delta d, Step step, Recurrence r) {
    __shared__ __align__(16) float keys[CHUNK][COLUMN], queries[CHUNK][COLUMN], keeps[CHUNK][COLUMN];
    __shared__ float values[CHUNK][COLUMNS], betas[CHUNK];
    const u32 head = blockIdx.y, sequence = blockIdx.z, key_head = head % d.key_heads;
    const u32 to = r.to[sequence];
    if (to == NONE) return;
    const u32 from = r.from[sequence];
    const Run run = run_of(step, r, sequence);
    const u32 decays = d.per_channel ? d.key_dim : 1;
    const u32 kept_decay = d.key_heads * d.key_dim, kept_v = kept_decay + d.heads * decays;
    const u32 kept_beta = kept_v + d.heads * d.value_dim;
    const u32 first_column = blockIdx.x * COLUMNS, column = first_column + threadIdx.x / SHARERS;
    const bool is_there = column < d.value_dim;
    const u64 place = (static_cast<u64>(head) * d.value_dim + column) * COLUMN;

    float state[PER];
    load_column(is_there && from != NONE ? slot_value(r, from) + place : nullptr, state);
    const u32 tokens = run.accepted + run.rows, certain = run.accepted + run.certain;
    if (certain == 0 && is_there) store_column(slot_value(r, to) + place, state);
    for (u32 first = 0; first < tokens; first += CHUNK) {
        const u32 count = min(CHUNK, tokens - first);
        __syncthreads();
        for (u32 t = 0; t < count; ++t) {
            const bool is_kept = first + t < run.accepted;
            const u64 row = is_kept ? 0 : run.first + first + t - run.accepted;
            const float *kept = is_kept ? slot_kept(r, from, r.from_bank[sequence], first + t) : nullptr;
            const float *k = (is_kept ? kept : d.k + row * d.key_heads * d.key_dim) + key_head * d.key_dim;
            const float *decay = (is_kept ? kept + kept_decay : d.decay + row * d.heads * decays) + head * decays;
            const float *v = (is_kept ? kept + kept_v : d.v + row * d.heads * d.value_dim) + head * d.value_dim;
            stage(keys[t], k, d.key_dim, 0);
            // Results of kept rows are not wanted: any query will do.
            stage(queries[t], is_kept ? k : d.q + (row * d.key_heads + key_head) * d.key_dim, d.key_dim, 0);
            for (u32 i = threadIdx.x; i < COLUMN; i += THREADS) {
                keeps[t][i] = i < d.key_dim ? expf(decay[d.per_channel ? i : 0]) : 1.0f;
            }
            if (threadIdx.x < COLUMNS) {
                const u32 c = first_column + threadIdx.x;
                values[t][threadIdx.x] = c < d.value_dim ? v[c] : 0.0f;
            }
            if (threadIdx.x == 0) betas[t] = is_kept ? kept[kept_beta + head] : d.beta[row * d.heads + head];
        }
        __syncthreads();
        for (u32 t = 0; t < count; ++t) {
#pragma unroll
            for (u32 i = 0; i < PER; i += 4) {
                const float4 keep = *reinterpret_cast<const float4 *>(&keeps[t][entry_of(i)]);
                state[i] *= keep.x, state[i + 1] *= keep.y, state[i + 2] *= keep.z, state[i + 3] *= keep.w;
            }
            const float found = column_sum(products(keys[t], state));
            const float delta = betas[t] * (values[t][threadIdx.x / SHARERS] - found);
#pragma unroll
            for (u32 i = 0; i < PER; i += 4) {
                const float4 k = *reinterpret_cast<const float4 *>(&keys[t][entry_of(i)]);
                state[i] = fmaf(k.x, delta, state[i]), state[i + 1] = fmaf(k.y, delta, state[i + 1]);
                state[i + 2] = fmaf(k.z, delta, state[i + 2]), state[i + 3] = fmaf(k.w, delta, state[i + 3]);
            }
            const float result = d.scale * column_sum(products(queries[t], state));
            if (first + t >= run.accepted && is_there && threadIdx.x % SHARERS == 0) {
                const u64 row = run.first + first + t - run.accepted;
                d.out[(row * d.heads + head) * d.value_dim + column] = result;
            }
            if (first + t + 1 == certain && is_there) store_column(slot_value(r, to) + place, state);
        }
    }
    // What is kept of tentative rows: each block the part that it alone has.
    for (u32 t = run.certain; t < run.rows; ++t) {
        const u64 row = run.first + t;
        float *kept = slot_kept(r, to, r.to_bank[sequence], t - run.certain);
        const u32 c = first_column + threadIdx.x;
        if (threadIdx.x < COLUMNS && c < d.value_dim) {
            const u32 i = head * d.value_dim + c;
            kept[kept_v + i] = d.v[row * d.heads * d.value_dim + i];
        }
        if (blockIdx.x != 0) continue;
        for (u32 i = threadIdx.x; i < d.key_dim && head < d.key_heads; i += THREADS) {
            kept[head * d.key_dim + i] = d.k[(row * d.key_heads + head) * d.key_dim + i];
        }
        for (u32 i = threadIdx.x; i < decays; i += THREADS) {
            kept[kept_decay + head * decays + i] = d.decay[(row * d.heads + head) * decays + i];
        }
        if (threadIdx.x == 0) kept[kept_beta + head] = d.beta[row * d.heads + head];
    }
}

// The selective state-space scan. Per head, with S [dim, size], and B, C of group `head / (heads/groups)`:
// S ← e^(dt·a)·S + dt·x·Bᵀ; y = S·C + d·x. In a slot: [heads][dim][COLUMN]. What is kept of a row: x, B, dt.
struct Scan {
    const float *x;  // [rows][heads][dim]
    const float *b;  // [rows][groups][size]
    const float *c;  // [rows][groups][size]
    const float *dt; // [rows][heads]
    const float *a;  // [heads]
    const float *d;  // [heads], or null
    float *out;      // [rows][heads][dim]
    u32 heads;
    u32 dim;
    u32 groups;
    u32 size;
};

// A block takes columns (x) of a head (y) of a sequence (z): a column is an entry of the head.
KERNEL __launch_bounds__(THREADS) ssm(Scan s, Step step, Recurrence r) {
    __shared__ __align__(16) float ins[CHUNK][COLUMN], outs[CHUNK][COLUMN];
    __shared__ float operands[CHUNK][COLUMNS], times[CHUNK];
    const u32 head = blockIdx.y, sequence = blockIdx.z, heads_of_group = s.heads / s.groups, group = head / heads_of_group;
    const u32 to = r.to[sequence];
    if (to == NONE) return;
    const u32 from = r.from[sequence];
    const Run run = run_of(step, r, sequence);
    const u32 kept_b = s.heads * s.dim, kept_dt = kept_b + s.groups * s.size;
    const u32 first_column = blockIdx.x * COLUMNS, column = first_column + threadIdx.x / SHARERS;
    const bool is_there = column < s.dim;
    const u64 place = (static_cast<u64>(head) * s.dim + column) * COLUMN;
    const float a = s.a[head], skip = s.d ? s.d[head] : 0.0f;

    float state[PER];
    load_column(is_there && from != NONE ? slot_value(r, from) + place : nullptr, state);
    const u32 tokens = run.accepted + run.rows, certain = run.accepted + run.certain;
    if (certain == 0 && is_there) store_column(slot_value(r, to) + place, state);
    for (u32 first = 0; first < tokens; first += CHUNK) {
        const u32 count = min(CHUNK, tokens - first);
        __syncthreads();
        for (u32 t = 0; t < count; ++t) {
            const bool is_kept = first + t < run.accepted;
            const u64 row = is_kept ? 0 : run.first + first + t - run.accepted;
            const float *kept = is_kept ? slot_kept(r, from, r.from_bank[sequence], first + t) : nullptr;
            const float *b = (is_kept ? kept + kept_b : s.b + row * s.groups * s.size) + group * s.size;
            const float *x = (is_kept ? kept : s.x + row * s.heads * s.dim) + head * s.dim;
            stage(ins[t], b, s.size, 0);
            stage(outs[t], is_kept ? b : s.c + (row * s.groups + group) * s.size, s.size, 0);
            if (threadIdx.x < COLUMNS) {
                const u32 c = first_column + threadIdx.x;
                operands[t][threadIdx.x] = c < s.dim ? x[c] : 0.0f;
            }
            if (threadIdx.x == 0) times[t] = is_kept ? kept[kept_dt + head] : s.dt[row * s.heads + head];
        }
        __syncthreads();
        for (u32 t = 0; t < count; ++t) {
            const float x = operands[t][threadIdx.x / SHARERS], dt = times[t], keep = expf(dt * a), dtx = dt * x;
#pragma unroll
            for (u32 i = 0; i < PER; i += 4) {
                const float4 b = *reinterpret_cast<const float4 *>(&ins[t][entry_of(i)]);
                state[i] = fmaf(state[i], keep, dtx * b.x), state[i + 1] = fmaf(state[i + 1], keep, dtx * b.y);
                state[i + 2] = fmaf(state[i + 2], keep, dtx * b.z), state[i + 3] = fmaf(state[i + 3], keep, dtx * b.w);
            }
            const float result = fmaf(skip, x, column_sum(products(outs[t], state)));
            if (first + t >= run.accepted && is_there && threadIdx.x % SHARERS == 0) {
                const u64 row = run.first + first + t - run.accepted;
                s.out[(row * s.heads + head) * s.dim + column] = result;
            }
            if (first + t + 1 == certain && is_there) store_column(slot_value(r, to) + place, state);
        }
    }
    for (u32 t = run.certain; t < run.rows; ++t) {
        const u64 row = run.first + t;
        float *kept = slot_kept(r, to, r.to_bank[sequence], t - run.certain);
        const u32 c = first_column + threadIdx.x;
        if (threadIdx.x < COLUMNS && c < s.dim) kept[head * s.dim + c] = s.x[(row * s.heads + head) * s.dim + c];
        if (blockIdx.x != 0) continue;
        for (u32 i = threadIdx.x; i < s.size && head % heads_of_group == 0; i += THREADS) {
            kept[kept_b + group * s.size + i] = s.b[(row * s.groups + group) * s.size + i];
        }
        if (threadIdx.x == 0) kept[kept_dt + head] = s.dt[row * s.heads + head];
    }
}

// A causal depthwise convolution: y_t[c] = bias[c] + Σ_j weight[c, j] · x_(t - (taps-1-j)·dilation)[c], by rising tap. In a
// slot: the last (taps-1)·dilation rows of x, oldest first. What is kept of a row: x.
struct Conv {
    const float *x;      // [rows][width]
    const float *weight; // [width][taps]
    const float *bias;   // [width], or null
    float *out;          // [rows][width]
    u32 width;
    u32 taps;
    u32 dilation;
};

// A sequence's list of rows, for one channel: those of the state, the accepted ones, the step's.
struct Line {
    const float *value; // null: zeros
    const float *kept;
    const float *x;
    u32 held;     // rows of the state
    u32 accepted;
    u32 inputs;
    u32 width;

    __device__ inline float at(u32 index) const {
        if (index >= held + accepted) return x[static_cast<u64>(index - held - accepted) * width];
        if (index >= held) return kept[static_cast<u64>(index - held) * inputs];
        return value ? value[static_cast<u64>(index) * width] : 0.0f;
    }
};

__device__ inline Line line_of(const Conv &conv, const Recurrence &r, const Run &run, u32 sequence, u32 channel) {
    const u32 from = r.from[sequence];
    const bool is_new = from == NONE;
    return {is_new ? nullptr : slot_value(r, from) + channel,
            is_new ? nullptr : slot_kept(r, from, r.from_bank[sequence], 0) + channel,
            conv.x + static_cast<u64>(run.first) * conv.width + channel,
            (conv.taps - 1) * conv.dilation,
            run.accepted,
            r.inputs,
            conv.width};
}

__device__ inline void conv_row(const Conv &conv, const Line &line, const Run &run, u32 channel, u32 i) {
    float sum = conv.bias ? conv.bias[channel] : 0.0f;
    const u32 last = line.held + line.accepted + i;
    for (u32 tap = 0; tap < conv.taps; ++tap) {
        const float weight = conv.weight[static_cast<u64>(channel) * conv.taps + tap];
        sum = fmaf(weight, line.at(last - (conv.taps - 1 - tap) * conv.dilation), sum);
    }
    conv.out[static_cast<u64>(run.first + i) * conv.width + channel] = sum;
}

// Rows move to lower places only, so the lowest goes first where both lie in one slot.
__device__ inline void conv_state(const Conv &conv, const Recurrence &r, const Line &line, const Run &run, u32 sequence,
                                  u32 channel) {
    const u32 to = r.to[sequence];
    float *value = slot_value(r, to) + channel;
    for (u32 i = 0; i < line.held; ++i) value[static_cast<u64>(i) * conv.width] = line.at(run.accepted + run.certain + i);
    for (u32 i = run.certain; i < run.rows; ++i) {
        slot_kept(r, to, r.to_bank[sequence], i - run.certain)[channel] = line.x[static_cast<u64>(i) * conv.width];
    }
}

// A thread takes a channel (x) of a row (y).
KERNEL __launch_bounds__(THREADS) conv_rows(Conv conv, Step step, Recurrence r) {
    const u32 channel = blockIdx.x * THREADS + threadIdx.x, sequence = step.row_sequence[blockIdx.y];
    if (channel >= conv.width || sequence == NONE || r.to[sequence] == NONE) return;
    const Run run = run_of(step, r, sequence);
    conv_row(conv, line_of(conv, r, run, sequence, channel), run, channel, blockIdx.y - run.first);
}

// A thread takes a channel (x) of a sequence (y): the state that is left, and, for steps of few rows, all rows before.
KERNEL __launch_bounds__(THREADS) conv_leave(Conv conv, Step step, Recurrence r, u32 with_rows) {
    const u32 channel = blockIdx.x * THREADS + threadIdx.x, sequence = blockIdx.y;
    if (channel >= conv.width || r.to[sequence] == NONE) return;
    const Run run = run_of(step, r, sequence);
    const Line line = line_of(conv, r, run, sequence, channel);
    if (with_rows) {
        for (u32 i = 0; i < run.rows; ++i) conv_row(conv, line, run, channel, i);
    }
    conv_state(conv, r, line, run, sequence, channel);
}
