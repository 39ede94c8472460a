/* A small JSON reader and writer: as much of both as a family plugin needs. */
#ifndef MINIMAL_JSON_H
#define MINIMAL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a value is. Numbers stay as they are written. */
typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

/* A text: not ended by a zero byte, and it may hold some. */
typedef struct {
    const char *data;
    size_t len;
} json_text;

/* A value. Those in an array or object are a list. */
typedef struct json_value {
    json_kind kind;
    bool truth;               /* of a bool */
    bool seen;                /* for the caller */
    json_text text;           /* of a string, unescaped; of a number, as written */
    json_text key;            /* its own, if it is in an object */
    struct json_value *first; /* in an array or object */
    struct json_value *next;  /* behind it in the same one */
} json_value;

/* Holds the values of one document. Zero it before reading, and free it afterwards, also if reading failed. */
typedef struct {
    struct json_block *blocks;
} json_arena;

/* Reads a document; NULL if the bytes are none, nest too deeply, or there is no memory. */
json_value *json_read(json_arena *arena, const uint8_t *bytes, size_t len);

void json_free(json_arena *arena);

/* The value of a key; NULL if there is none or `object` is NULL or no object. */
json_value *json_get(const json_value *object, const char *key);

bool json_is(json_text text, const char *expected);

/* A whole number of 0 or more, written in decimal digits, up to `most`; false if the text is anything else. */
bool json_whole(json_text text, uint64_t most, uint64_t *number);

/* Bytes that grow. After a failure nothing more is written, and `failed` stays. */
typedef struct {
    char *data;
    size_t len, room;
    bool failed;
} json_out;

/* Appends what printf would write. */
void json_printf(json_out *out, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Appends the bytes as they are. */
void json_append(json_out *out, const char *data, size_t len);

/* Appends a string in quotes. What is not UTF-8 must not be given. */
void json_quote(json_out *out, json_text text);

#endif
