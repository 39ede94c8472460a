/* See json.h. */
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arrays and objects in each other: more than any request has, fewer than a stack holds. */
#define DEEPEST 64

/* What stands before a piece of memory, and is as wide as the widest type, so that any may follow. */
struct json_block {
    union {
        struct json_block *next;
        long double widest;
    } before;
};

static void *allocate(json_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    struct json_block *block = malloc(sizeof *block + size);
    if (block == NULL) return NULL;
    block->before.next = arena->blocks;
    arena->blocks = block;
    return block + 1;
}

void json_free(json_arena *arena) {
    while (arena->blocks != NULL) {
        struct json_block *next = arena->blocks->before.next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

typedef struct {
    json_arena *arena;
    const unsigned char *at, *end;
} reader;

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool take(reader *r, char c) {
    if (r->at == r->end || *r->at != (unsigned char)c) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0) return false;
    r->at += len;
    return true;
}

static bool digit(const reader *r) {
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool take_digits(reader *r) {
    if (!digit(r)) return false;
    while (digit(r)) r->at++;
    return true;
}

static bool read_number(reader *r, json_text *text) {
    const unsigned char *start = r->at;
    take(r, '-');
    if (!take(r, '0') && !take_digits(r)) return false;
    if (take(r, '.') && !take_digits(r)) return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) take(r, '-');
        if (!take_digits(r)) return false;
    }
    text->data = (const char *)start;
    text->len = (size_t)(r->at - start);
    return true;
}

/* Four hexadecimal digits. */
static bool read_unit(reader *r, uint32_t *unit) {
    *unit = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        if (r->at == r->end) return false;
        unsigned char c = *r->at;
        uint32_t nibble;
        if (c >= '0' && c <= '9') nibble = c - '0';
        else if (c >= 'a' && c <= 'f') nibble = c - 'a' + 10u;
        else if (c >= 'A' && c <= 'F') nibble = c - 'A' + 10u;
        else return false;
        *unit = *unit << 4 | nibble;
    }
    return true;
}

/* What stands behind \u: a character, of two units if it is beyond 16 bits. */
static bool read_character(reader *r, uint32_t *c) {
    if (!read_unit(r, c) || (*c >= 0xDC00 && *c < 0xE000)) return false;
    if (*c < 0xD800 || *c >= 0xE000) return true;
    uint32_t low;
    if (!take(r, '\\') || !take(r, 'u') || !read_unit(r, &low) || low < 0xDC00 || low >= 0xE000) return false;
    *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* Copies one character of UTF-8; false if it is none. */
static bool take_character(reader *r, char **to) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint32_t c = *r->at++;
    int more = c < 0x80 ? 0 : c >= 0xC0 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF8 ? 3 : -1;
    if (more < 0 || r->end - r->at < more) return false;
    c &= more == 0 ? 0x7Fu : 0x3Fu >> more;
    for (int i = 0; i < more; i++) {
        if ((*r->at & 0xC0) != 0x80) return false;
        c = c << 6 | (*r->at++ & 0x3Fu);
    }
    if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
    *to = put_utf8(*to, c);
    return true;
}

/* The string behind an opening quote. Unescaped, it is no longer than as it is written. */
static bool read_string(reader *r, json_text *text) {
    const unsigned char *close = r->at;
    while (close < r->end && *close != '"') close += *close == '\\' && r->end - close > 1 ? 2 : 1;
    if (close >= r->end) return false;
    char *to = allocate(r->arena, (size_t)(close - r->at) + 1);
    if (to == NULL) return false;
    text->data = to;
    while (r->at < r->end && *r->at != '"') {
        if (*r->at < 0x20) return false;
        if (!take(r, '\\')) {
            if (!take_character(r, &to)) return false;
            continue;
        }
        if (r->at == r->end) return false;
        static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        unsigned char escape = *r->at++;
        const char *known = escape == 0 ? NULL : strchr(escapes, escape);
        uint32_t character;
        if (known != NULL) *to++ = meant[known - escapes];
        else if (escape == 'u' && read_character(r, &character)) to = put_utf8(to, character);
        else return false;
    }
    text->len = (size_t)(to - text->data);
    return take(r, '"');
}

static json_value *read_value(reader *r, int depth);

/* What stands behind an opening bracket or brace. */
static bool read_members(reader *r, json_value *in, int depth) {
    bool named = in->kind == JSON_OBJECT;
    json_value **last = &in->first;
    skip_space(r);
    if (take(r, named ? '}' : ']')) return true;
    for (;;) {
        json_text key = {NULL, 0};
        skip_space(r);
        if (named) {
            if (!take(r, '"') || !read_string(r, &key)) return false;
            skip_space(r);
            if (!take(r, ':')) return false;
        }
        json_value *value = read_value(r, depth - 1);
        if (value == NULL) return false;
        value->key = key;
        *last = value;
        last = &value->next;
        skip_space(r);
        if (take(r, named ? '}' : ']')) return true;
        if (!take(r, ',')) return false;
    }
}

static json_value *read_value(reader *r, int depth) {
    json_value *value = depth > 0 ? allocate(r->arena, sizeof *value) : NULL;
    if (value == NULL) return NULL;
    memset(value, 0, sizeof *value);
    skip_space(r);
    bool read;
    if (take(r, '{')) {
        value->kind = JSON_OBJECT;
        read = read_members(r, value, depth);
    } else if (take(r, '[')) {
        value->kind = JSON_ARRAY;
        read = read_members(r, value, depth);
    } else if (take(r, '"')) {
        value->kind = JSON_STRING;
        read = read_string(r, &value->text);
    } else if (take_word(r, "null")) {
        read = true;
    } else if (take_word(r, "true")) {
        value->kind = JSON_BOOL;
        read = value->truth = true;
    } else if (take_word(r, "false")) {
        value->kind = JSON_BOOL;
        read = true;
    } else {
        value->kind = JSON_NUMBER;
        read = read_number(r, &value->text);
    }
    return read ? value : NULL;
}

json_value *json_read(json_arena *arena, const uint8_t *bytes, size_t len) {
    if (bytes == NULL || len == 0) return NULL;
    reader r = {arena, bytes, bytes + len};
    json_value *value = read_value(&r, DEEPEST);
    skip_space(&r);
    return r.at == r.end ? value : NULL;
}

json_value *json_get(const json_value *object, const char *key) {
    if (object == NULL || object->kind != JSON_OBJECT) return NULL;
    for (json_value *value = object->first; value != NULL; value = value->next) {
        if (json_is(value->key, key)) return value;
    }
    return NULL;
}

bool json_is(json_text text, const char *expected) {
    return text.len == strlen(expected) && memcmp(text.data, expected, text.len) == 0;
}

bool json_whole(json_text text, uint64_t most, uint64_t *number) {
    *number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (digit > most || *number > (most - digit) / 10) return false;
        *number = *number * 10 + digit;
    }
    return text.len > 0;
}

/* Makes room for so many bytes more, and a zero byte, which printf needs. */
static bool make_room(json_out *out, size_t more) {
    if (out->failed) return false;
    if (out->room - out->len > more) return true;
    size_t room = more < SIZE_MAX / 4 - out->len ? (out->len + more + 1) * 2 : 0;
    char *data = room > 0 ? realloc(out->data, room) : NULL;
    if (data == NULL) {
        out->failed = true;
        return false;
    }
    out->data = data;
    out->room = room;
    return true;
}

void json_append(json_out *out, const char *data, size_t len) {
    if (len == 0 || !make_room(out, len)) return;
    memcpy(out->data + out->len, data, len);
    out->len += len;
}

void json_printf(json_out *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (len < 0) out->failed = true;
    if (len < 0 || !make_room(out, (size_t)len)) return;
    va_start(arguments, format);
    vsnprintf(out->data + out->len, (size_t)len + 1, format, arguments);
    va_end(arguments);
    out->len += (size_t)len;
}

void json_quote(json_out *out, json_text text) {
    json_append(out, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\') json_printf(out, "\\%c", c);
        else if (c < 0x20) json_printf(out, "\\u%04x", c);
        else json_append(out, text.data + i, 1);
    }
    json_append(out, "\"", 1);
}
