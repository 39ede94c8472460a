// What the kernels of attention agree on: which keys a query sees, in which pieces they are walked, and how the results of
// pieces are joined.
//
// A query walks the keys of a source (a state, or the step's own rows) in pieces on a grid that begins at key 0, or, where
// rows are chosen for it, at the first chosen one. A piece has a result of its own: the greatest score, the sum of the
// weights relative to it, the sum of the weighted values. Results are joined one after another, by rising piece. A piece's
// result depends on the query and the keys that it sees there alone, so a query's bits depend neither on the rows beside it
// nor on how many blocks of threads share the work.
//
// Scores are kept times log2(e): a weight is then a power of two.
#pragma once
#include "state.cuh"

// Keys of a piece: as many as keep a card busy with one sequence of some thousand tokens, and so many that their results are
// small beside them.
constexpr u32 PIECE = 256;

constexpr float LOG2_E = 1.4426950408889634f;

// Which keys of a source a query at `p` sees, of those that its window leaves.
enum Sight : u32 {
    SEES_STORED = 0,     // tokens up to its own
    SEES_BEFORE = 1,     // tokens up to its own, of those before the step
    SEES_PAST = 2,       // tokens before the step, with the window of the step's first row less one
    SEES_STEP = 3,       // all tokens of its sequence in the step
    SEES_ROWS = 4,       // strided rows that are complete with it
    SEES_ROWS_BEFORE = 5 // strided rows that were complete before the step
};

struct Keys {
    State k;
    State v;         // values; where they are the first entries of the keys, the keys' state again
    const u32 *ids;  // [rows][ids_width] chosen blocks of tokens or chosen rows, rising, then NONE; null: all are seen
    u32 ids_width;
    u32 block;       // tokens of a chosen block; 0: ids are rows
    u32 window;      // keys that are seen at most; 0: all
    u32 sight;       // one of Sight
};

struct Queries {
    const float *q;     // [rows][heads][width], rotated if the keys are
    const uint2 *tiles; // first row and number of rows: runs of rows of one sequence; null: tile i is row i
    u32 heads;
    u32 group;          // query heads of a head of keys
    u32 width;          // entries of a head
    float scale;        // factor on the scores
};

// Results of pieces, or, if `split` is 0, of all pieces of a source joined.
struct Partials {
    float2 *marks;   // [rows][heads][pieces]: greatest score (-inf: no key was seen), sum of weights
    float *sums;     // [rows][heads][pieces][width]
    u32 pieces;      // places for pieces of a row; a row's first piece has place 0
    u32 width;       // entries of a value as it is stored
    u32 split;
};

// Keys from `first` on, before `end`.
struct Span {
    u32 first;
    u32 end;
};

// The tokens (or strided rows, or rows of the step) that a query may see.
__device__ inline Span span_of(const Keys &keys, const Step &step, u32 row) {
    const u32 sequence = step.row_sequence[row], behind = step.row_index[row] + 1, start = step.start[sequence];
    u32 end = behind, window_end = behind;
    switch (keys.sight) {
    case SEES_STORED: break;
    case SEES_BEFORE: end = min(behind, start); break;
    case SEES_PAST: end = start, window_end = start; break;
    case SEES_STEP: return {0, step.first_row[sequence + 1] - step.first_row[sequence]};
    case SEES_ROWS: return {0, behind / keys.k.stride};
    default: return {0, start / keys.k.stride};
    }
    const u32 first = keys.window != 0 && window_end > keys.window ? window_end - keys.window : 0;
    return {min(first, end), end};
}

// The keys that were chosen for a query, as a list: those of the chosen blocks, then those behind the last complete block.
struct Chosen {
    const u32 *ids;
    u32 block;  // tokens of a block
    u32 listed; // keys in the chosen blocks
    u32 open;   // first token behind the last complete block
    u32 keys;   // all of them
};

__device__ inline Chosen chosen_of(const Keys &keys, const Step &step, u32 row) {
    const u32 *ids = keys.ids + static_cast<u64>(row) * keys.ids_width;
    u32 count = 0, behind = keys.ids_width;
    while (count < behind) {
        const u32 middle = (count + behind) / 2;
        if (ids[middle] == NONE) behind = middle;
        else count = middle + 1;
    }
    if (keys.block == 0) return {ids, 1, count, 0, count};
    const u32 tokens = step.row_index[row] + 1, open = tokens / keys.block * keys.block;
    return {ids, keys.block, count * keys.block, open, count * keys.block + tokens - open};
}

__device__ inline u32 chosen_key(const Chosen &chosen, u32 i) {
    if (i >= chosen.listed) return chosen.open + i - chosen.listed;
    return chosen.ids[i / chosen.block] * chosen.block + i % chosen.block;
}

// The pieces that a row walks.
__device__ inline Span pieces_of(const Keys &keys, const Step &step, u32 row) {
    if (keys.ids) return {0, (chosen_of(keys, step, row).keys + PIECE - 1) / PIECE};
    const Span span = span_of(keys, step, row);
    if (span.first >= span.end) return {0, 0};
    return {span.first / PIECE, (span.end + PIECE - 1) / PIECE};
}

// How a total and the next piece's result are joined.
struct Join {
    float keep; // factor of the total
    float take; // factor of the piece
};

__device__ inline Join join_of(float total, float piece) {
    if (piece == -INFINITY) return {1, 0};
    if (total == -INFINITY) return {0, 1};
    const float greatest = fmaxf(total, piece);
    return {exp2f(total - greatest), exp2f(piece - greatest)};
}

// What is not taken in is not looked at: it may be anything.
__device__ inline float joined(Join join, float total, float piece) {
    if (join.take == 0) return total;
    if (join.keep == 0) return piece;
    return fmaf(piece, join.take, total * join.keep);
}
