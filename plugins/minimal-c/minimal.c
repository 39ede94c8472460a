/*
 * A family plugin in C: decoders like Llama's, whose architecture is called `minimal`.
 *
 * It reads its configuration from the checkpoint's metadata, checks the shape of every tensor, and writes the forward pass
 * as a graph: per layer RMS norm, attention with rotary embedding, RMS norm, gated feed-forward. What it does not know it
 * refuses, by the name of the key or the tensor.
 */
#include "../bantam_plugin.h"
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest size that makes sense: products of two of them fit into 64 bits. */
#define MOST (UINT64_C(1) << 31)
#define MOST_LAYERS 4096

/* Room for the name of a key, tensor or value: those made here are shorter. */
#define NAME 96

typedef struct {
    uint64_t layers, context, hidden, ffn, vocab;
    uint64_t heads, kv_heads, key_dim, value_dim, rope_dims;
    json_text norm_eps, rope_base; /* as the request has them */
    float scale;
} config;

/* A request being answered: what was asked, and what was written so far. */
typedef struct {
    json_value *metadata, *tensors;
    config c;
    json_out weights, states, nodes; /* the three lists of the graph */
    json_out error;                  /* what is refused; nothing: nothing is */
    int layer;                       /* whose names are written; -1: none's */
} build;

static json_text text_of(const char *text) {
    json_text t = {text, strlen(text)};
    return t;
}

/* Refuses the checkpoint, unless that was done before. Returns false. */
static bool refuse(build *b, const char *what, json_text name, const char *expected, const char *found) {
    if (b->error.len > 0) return false;
    json_printf(&b->error, "{\"%s\":", what);
    json_quote(&b->error, name);
    json_printf(&b->error, ",\"expected\":");
    json_quote(&b->error, text_of(expected));
    json_printf(&b->error, ",\"found\":");
    json_quote(&b->error, text_of(found));
    json_printf(&b->error, "}");
    return false;
}

/*
 * The value of a key of the architecture, if it is of this kind: {"uint":"7"}, {"float":0.5}. NULL if there is none; what
 * is of another kind is refused.
 */
static json_value *meta(build *b, const char *key, const char *kind, const char *expected) {
    char whole[NAME];
    snprintf(whole, sizeof whole, "minimal.%s", key);
    json_value *tagged = json_get(b->metadata, whole);
    json_value *value = json_get(tagged, kind);
    if (tagged != NULL && value == NULL) refuse(b, "key", text_of(whole), expected, "a value of another type");
    return value;
}

/* A size from 1 to `most`; `or_else` if the key is missing, unless that is 0. */
static uint64_t size(build *b, const char *key, uint64_t most, uint64_t or_else) {
    char expected[NAME], whole[NAME];
    snprintf(expected, sizeof expected, "an integer from 1 to %" PRIu64, most);
    snprintf(whole, sizeof whole, "minimal.%s", key);
    json_value *value = meta(b, key, "uint", expected);
    uint64_t number = 0;
    if (value == NULL && or_else == 0) refuse(b, "key", text_of(whole), expected, "no such key");
    if (value == NULL) return or_else;
    if (value->kind != JSON_STRING || !json_whole(value->text, most, &number) || number == 0) {
        refuse(b, "key", text_of(whole), expected, "a number beyond that");
    }
    return number;
}

/* A number above `least`, as it is written; `or_else` if the key is missing, unless that is NULL. */
static json_text number(build *b, const char *key, double least, const char *or_else) {
    json_value *value = meta(b, key, "float", "a number");
    char whole[NAME], digits[NAME], *end;
    snprintf(whole, sizeof whole, "minimal.%s", key);
    if (value == NULL && or_else == NULL) refuse(b, "key", text_of(whole), "a number", "no such key");
    if (value == NULL) return text_of(or_else == NULL ? "0" : or_else);
    bool fits = value->kind == JSON_NUMBER && value->text.len < sizeof digits;
    if (fits) {
        memcpy(digits, value->text.data, value->text.len);
        digits[value->text.len] = 0;
        double x = strtod(digits, &end);
        fits = *end == 0 && x > least && x < 1e12;
    }
    if (!fits) refuse(b, "key", text_of(whole), "a number that makes sense", "another value");
    return value->text;
}

static bool read_config(build *b) {
    config *c = &b->c;
    c->layers = size(b, "block_count", MOST_LAYERS, 0);
    c->context = size(b, "context_length", MOST, 0);
    c->hidden = size(b, "embedding_length", MOST, 0);
    c->ffn = size(b, "feed_forward_length", MOST, 0);
    c->heads = size(b, "attention.head_count", MOST, 0);
    c->kv_heads = size(b, "attention.head_count_kv", MOST, c->heads);
    if (b->error.len > 0) return false;
    if (c->heads % c->kv_heads != 0) {
        return refuse(b, "key", text_of("minimal.attention.head_count_kv"), "a divisor of the query heads", "none");
    }
    c->key_dim = size(b, "attention.key_length", MOST, c->hidden / c->heads);
    c->value_dim = size(b, "attention.value_length", MOST, c->hidden / c->heads);
    c->rope_dims = size(b, "rope.dimension_count", MOST, c->key_dim);
    if (c->rope_dims > c->key_dim || c->rope_dims % 2 != 0) {
        return refuse(b, "key", text_of("minimal.rope.dimension_count"), "an even part of a head", "more, or odd");
    }
    c->norm_eps = number(b, "attention.layer_norm_rms_epsilon", 0, NULL);
    c->rope_base = number(b, "rope.freq_base", 1, "10000");
    c->scale = (float)(1 / sqrt((double)c->key_dim));
    return b->error.len == 0;
}

/* Whether a tensor of this type holds floats, or blocks of numbers that stand for some. */
static bool holds_weights(json_text type) {
    static const char *const plain[] = {"F32", "F16", "BF16"}, *const blocks[] = {"Q", "IQ", "TQ", "MXFP", "NVFP"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (json_is(type, plain[i])) return true;
    }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        size_t len = strlen(blocks[i]);
        if (type.len > len && memcmp(type.data, blocks[i], len) == 0) return true;
    }
    return false;
}

/* Writes a shape for people: the fastest axis first, as tools for GGUF files do. */
static void show(char shown[NAME], int axes, const uint64_t *shape) {
    int len = snprintf(shown, NAME, "shape [");
    for (int i = axes; i-- > 0 && len < NAME;) {
        len += snprintf(shown + len, (size_t)(NAME - len), "%" PRIu64 "%s", shape[i], i == 0 ? "]" : ", ");
    }
}

/* A tensor's shape, slowest axis first; false if it has not so many axes. */
static bool shape_of(const json_value *tensor, int axes, uint64_t *shape) {
    json_value *list = json_get(tensor, "shape");
    json_value *extent = list != NULL && list->kind == JSON_ARRAY ? list->first : NULL;
    for (int i = 0; i < axes; i++) {
        if (extent == NULL || extent->kind != JSON_NUMBER || !json_whole(extent->text, MOST, &shape[i])) return false;
        extent = extent->next;
    }
    return extent == NULL;
}

/* Declares the weight that is the tensor of this name, `[rows, columns]`, or `[columns]` where there are no rows. */
static bool weight(build *b, const char *name, uint64_t rows, uint64_t columns) {
    uint64_t wanted[2] = {rows, columns}, found[2] = {0, 0};
    const uint64_t *shape = rows > 0 ? wanted : wanted + 1;
    int axes = rows > 0 ? 2 : 1;
    char expected[NAME], other[NAME];
    show(expected, axes, shape);
    json_value *tensor = json_get(b->tensors, name), *type = json_get(tensor, "type");
    if (tensor == NULL) return refuse(b, "tensor", text_of(name), expected, "no tensor of this name");
    if (!shape_of(tensor, axes, found)) return refuse(b, "tensor", text_of(name), expected, "other axes");
    if (memcmp(found, shape, (size_t)axes * sizeof *shape) != 0) {
        show(other, axes, found);
        return refuse(b, "tensor", text_of(name), expected, other);
    }
    if (type == NULL || type->kind != JSON_STRING || !holds_weights(type->text)) {
        return refuse(b, "tensor", text_of(name), "F32, F16, BF16 or a quantized type", "another type");
    }
    if (tensor->seen) return true;
    tensor->seen = true;
    json_printf(&b->weights, "%s{\"name\":\"%s\",\"shape\":[", b->weights.len > 0 ? "," : "", name);
    if (rows > 0) json_printf(&b->weights, "%" PRIu64 ",", rows);
    json_printf(&b->weights, "%" PRIu64 "],\"expr\":{\"tensor\":\"%s\"}}", columns, name);
    return true;
}

/* The full name of a value or state: with the layer behind it. */
static const char *full(const build *b, char whole[NAME], const char *name) {
    if (b->layer < 0) snprintf(whole, NAME, "%s", name);
    else snprintf(whole, NAME, "%s.%d", name, b->layer);
    return whole;
}

/* The name of a tensor of this layer, which it declares. */
static const char *tensor(build *b, char whole[NAME], const char *name, uint64_t rows, uint64_t columns) {
    if (b->layer < 0) snprintf(whole, NAME, "%s.weight", name);
    else snprintf(whole, NAME, "blk.%d.%s.weight", b->layer, name);
    weight(b, whole, rows, columns);
    return whole;
}

/* Begins a node: its attributes, and two braces, are to follow. */
static void node(build *b, const char *name, const char *op) {
    char whole[NAME];
    json_printf(&b->nodes, "%s{\"name\":\"%s\",\"op\":{\"%s\":{", b->nodes.len > 0 ? "," : "", full(b, whole, name), op);
}

/* Ends a node. */
static void end(build *b) {
    json_printf(&b->nodes, "}}}");
}

static void input(build *b, const char *name) {
    node(b, name, "input");
    json_printf(&b->nodes, "\"source\":\"%s\"", strcmp(name, "tokens") == 0 ? "token_ids" : "positions");
    end(b);
}

/* `x` is a value's full name here and below; `name` gets the layer. */
static void linear(build *b, const char *name, const char *x, const char *matrix, uint64_t rows, uint64_t columns) {
    char whole[NAME];
    tensor(b, whole, matrix, rows, columns);
    node(b, name, "linear");
    json_printf(&b->nodes, "\"x\":\"%s\",\"weight\":\"%s\"", x, whole);
    end(b);
}

static void norm(build *b, const char *name, const char *x) {
    char whole[NAME];
    tensor(b, whole, name, 0, b->c.hidden);
    node(b, name, "norm");
    json_printf(&b->nodes, "\"x\":\"%s\",\"weight\":\"%s\",\"kind\":\"rms\",\"eps\":", x, whole);
    json_append(&b->nodes, b->c.norm_eps.data, b->c.norm_eps.len);
    end(b);
}

static void add(build *b, const char *name, const char *x, const char *y) {
    node(b, name, "add");
    json_printf(&b->nodes, "\"a\":\"%s\",\"b\":\"%s\"", x, y);
    end(b);
}

/* Only the rows whose logits are wanted: past the last layer's attention no other is needed. */
static void wanted_rows(build *b, const char *name, const char *x) {
    node(b, name, "select");
    json_printf(&b->nodes, "\"x\":\"%s\",\"to\":\"logits\"", x);
    end(b);
}

/* Turns the heads of `x`; with `factors` by angles that are divided. */
static void rope(build *b, const char *name, const char *x, bool factors) {
    const config *c = &b->c;
    node(b, name, "rope");
    json_printf(&b->nodes, "\"x\":\"%s\",\"positions\":\"positions\",\"head_dim\":%" PRIu64 ",\"dims\":%" PRIu64, x,
                c->key_dim, c->rope_dims);
    json_printf(&b->nodes, ",\"pairing\":\"interleaved\",\"base\":");
    json_append(&b->nodes, c->rope_base.data, c->rope_base.len);
    if (factors) json_printf(&b->nodes, ",\"factors\":\"rope_freqs.weight\"");
    end(b);
}

static void state(build *b, const char *name, uint64_t dim) {
    char whole[NAME];
    json_printf(&b->states, "%s{\"name\":\"%s\",\"heads\":%" PRIu64 ",\"dim\":%" PRIu64,
                b->states.len > 0 ? "," : "", full(b, whole, name), b->c.kv_heads, dim);
    json_printf(&b->states, ",\"kind\":\"per_token\",\"dtype\":\"kv\"}");
}

/* From the normed row `x` to the value `attn_out`. */
static void attention(build *b, const char *x, bool factors) {
    const config *c = &b->c;
    char q[NAME], k[NAME], v[NAME], k_state[NAME], v_state[NAME];
    linear(b, "q_proj", x, "attn_q", c->heads * c->key_dim, c->hidden);
    linear(b, "k_proj", x, "attn_k", c->kv_heads * c->key_dim, c->hidden);
    linear(b, "v_proj", x, "attn_v", c->kv_heads * c->value_dim, c->hidden);
    rope(b, "q_rope", full(b, q, "q_proj"), factors);
    rope(b, "k_rope", full(b, k, "k_proj"), factors);
    state(b, "k", c->key_dim);
    state(b, "v", c->value_dim);
    node(b, "attn", "attention");
    json_printf(&b->nodes, "\"q\":\"%s\",\"k\":\"%s\",\"v\":\"%s\",\"k_state\":\"%s\",\"v_state\":\"%s\"",
                full(b, q, "q_rope"), full(b, k, "k_rope"), full(b, v, "v_proj"), full(b, k_state, "k"),
                full(b, v_state, "v"));
    json_printf(&b->nodes, ",\"heads\":%" PRIu64 ",\"scale\":%.9g", c->heads, (double)c->scale);
    end(b);
    linear(b, "attn_out", full(b, q, "attn"), "attn_output", c->hidden, c->heads * c->value_dim);
}

/* From the normed row `x` to the value `ffn_out`. */
static void feed_forward(build *b, const char *x) {
    const config *c = &b->c;
    char gate[NAME], up[NAME], act[NAME];
    linear(b, "ffn_gate", x, "ffn_gate", c->ffn, c->hidden);
    linear(b, "ffn_up", x, "ffn_up", c->ffn, c->hidden);
    node(b, "ffn_act", "glu");
    json_printf(&b->nodes, "\"gate\":\"%s\",\"up\":\"%s\",\"act\":\"silu\"", full(b, gate, "ffn_gate"),
                full(b, up, "ffn_up"));
    end(b);
    linear(b, "ffn_out", full(b, act, "ffn_act"), "ffn_down", c->hidden, c->ffn);
}

/* One layer, from the residual row `x`, which becomes that behind it. */
static void layer(build *b, char x[NAME], bool factors, bool last) {
    char normed[NAME], added[NAME];
    norm(b, "attn_norm", x);
    attention(b, full(b, normed, "attn_norm"), factors);
    full(b, added, "attn_out");
    if (last) {
        wanted_rows(b, "residual_rows", x);
        wanted_rows(b, "attn_rows", added);
        full(b, x, "residual_rows");
        full(b, added, "attn_rows");
    }
    add(b, "attn_residual", x, added);
    full(b, x, "attn_residual");
    norm(b, "ffn_norm", x);
    feed_forward(b, full(b, normed, "ffn_norm"));
    add(b, "layer_out", x, full(b, added, "ffn_out"));
    full(b, x, "layer_out");
}

static bool describe_model(build *b) {
    config *c = &b->c;
    uint64_t table[2];
    char x[NAME] = "embed", whole[NAME];
    if (!read_config(b)) return false;
    json_value *embeddings = json_get(b->tensors, "token_embd.weight");
    if (!shape_of(embeddings, 2, table) || table[0] == 0) {
        return refuse(b, "tensor", text_of("token_embd.weight"), "a row for each token", "no such matrix");
    }
    c->vocab = table[0];
    bool factors = json_get(b->tensors, "rope_freqs.weight") != NULL;
    if (factors) weight(b, "rope_freqs.weight", 0, c->rope_dims / 2);
    b->layer = -1;
    input(b, "tokens");
    input(b, "positions");
    tensor(b, whole, "token_embd", c->vocab, c->hidden);
    node(b, "embed", "embed");
    json_printf(&b->nodes, "\"ids\":\"tokens\",\"table\":\"%s\"", whole);
    end(b);
    for (uint64_t i = 0; i < c->layers && b->error.len == 0; i++) {
        b->layer = (int)i;
        layer(b, x, factors, i + 1 == c->layers);
    }
    b->layer = -1;
    norm(b, "output_norm", x);
    const char *output = json_get(b->tensors, "output.weight") != NULL ? "output" : "token_embd";
    linear(b, "logits", "output_norm", output, c->vocab, c->hidden);
    for (json_value *left = b->tensors->first; left != NULL; left = left->next) {
        /* Left out, it could make the model silently wrong. */
        if (!left->seen) return refuse(b, "tensor", left->key, "to be one that the family applies", "another one");
    }
    return b->error.len == 0;
}

static void write_model(json_out *out, const build *b) {
    const config *c = &b->c;
    json_printf(out, "{\"architecture\":\"minimal\",\"config\":{\"layers\":%" PRIu64 ",\"hidden\":%" PRIu64, c->layers,
                c->hidden);
    json_printf(out, ",\"heads\":%" PRIu64 ",\"kv_heads\":%" PRIu64 ",\"ffn\":%" PRIu64 "}", c->heads, c->kv_heads, c->ffn);
    json_printf(out, ",\"context_length\":%" PRIu64 ",\"text\":{\"name\":\"minimal\",\"weights\":[", c->context);
    json_append(out, b->weights.data, b->weights.len);
    json_printf(out, "],\"states\":[");
    json_append(out, b->states.data, b->states.len);
    json_printf(out, "],\"nodes\":[");
    json_append(out, b->nodes.data, b->nodes.len);
    json_printf(out, "],\"output\":\"logits\"},\"chat\":{\"stop_tokens\":[\"<|eot_id|>\",\"<|im_end|>\"]}}");
}

/* Hands what was written over as an answer. */
static int32_t give(json_out *out, bantam_bytes *answer) {
    if (out->failed || answer == NULL) {
        free(out->data);
        return 1;
    }
    answer->data = (uint8_t *)out->data;
    answer->len = out->len;
    return 0;
}

uint32_t bantam_plugin_abi(void) {
    return BANTAM_PLUGIN_ABI;
}

int32_t bantam_plugin_describe(bantam_bytes *answer) {
    json_out out = {NULL, 0, 0, false};
    json_printf(&out, "{\"bantam_plugin\":%u,\"name\":\"Minimal\",\"version\":\"1.0.0\",\"architectures\":[\"minimal\"]}",
                BANTAM_PLUGIN_ABI);
    return give(&out, answer);
}

int32_t bantam_plugin_build(const uint8_t *request, size_t request_len, bantam_bytes *answer) {
    json_arena arena = {NULL};
    json_out out = {NULL, 0, 0, false};
    build b = {0};
    json_value *root = json_read(&arena, request, request_len);
    json_value *version = json_get(root, "bantam_plugin");
    json_value *checkpoint = json_get(json_get(root, "model"), "checkpoint");
    b.metadata = json_get(checkpoint, "metadata");
    b.tensors = json_get(checkpoint, "tensors");
    json_printf(&out, "{\"bantam_plugin\":%u,", BANTAM_PLUGIN_ABI);
    if (version == NULL || version->kind != JSON_NUMBER || !json_is(version->text, "0")) {
        json_printf(&out, "\"error\":{\"message\":\"expected a request of version 0\"}}");
    } else if (b.tensors == NULL || b.tensors->kind != JSON_OBJECT) {
        json_printf(&out, "\"error\":{\"message\":\"this family describes models only\"}}");
    } else if (describe_model(&b)) {
        json_printf(&out, "\"model\":");
        write_model(&out, &b);
        json_printf(&out, "}");
    } else {
        json_printf(&out, "\"error\":");
        json_append(&out, b.error.data, b.error.len);
        json_printf(&out, "}");
    }
    out.failed |= b.weights.failed || b.states.failed || b.nodes.failed || b.error.failed;
    free(b.weights.data);
    free(b.states.data);
    free(b.nodes.data);
    free(b.error.data);
    json_free(&arena);
    return give(&out, answer);
}

void bantam_plugin_free(bantam_bytes *answer) {
    if (answer == NULL) return;
    free(answer->data);
    answer->data = NULL;
    answer->len = 0;
}
