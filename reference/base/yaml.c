/* yaml.c - libyaml's events to one tree; what a suite or run file has no use for is refused. */
#include "base/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

enum { DEPTH_MAX = 32 }; /* real files have five; a file of brackets must not end the stack */

struct reader {
  yaml_parser_t parser;
  const char *name; /* of the file, for messages */
};

void yaml_destroy(struct yaml *y)
{
  if (y == NULL) return;
  for (int i = 0; i < y->n; i++) {
    if (y->keys) yaml_destroy(y->keys[i]);
    if (y->values) yaml_destroy(y->values[i]);
  }
  free(y->keys);
  free(y->values);
  free(y->text);
  free(y);
}

struct yaml *yaml_get(const struct yaml *map, const char *key)
{
  if (map->kind != YAML_MAP) return NULL;
  for (int i = 0; i < map->n; i++)
    if (strcmp(map->keys[i]->text, key) == 0) return map->values[i];
  return NULL;
}

#define REFUSE(r, mark, ...) return refuse((r), (mark), __FILE__, __LINE__, __VA_ARGS__)
static enum err refuse(const struct reader *r, yaml_mark_t mark, const char *file, int line, const char *what,
                       const char *which)
{
  return err_set(ERR_CONFIG, file, line, "%s:%zu:%zu: %s%s%s%s", r->name, mark.line + 1, mark.column + 1, what,
                 which[0] ? " '" : "", which, which[0] ? "'" : "");
}

static enum err next(struct reader *r, yaml_event_t *event)
{
  if (yaml_parser_parse(&r->parser, event)) return ERR_OK;
  const yaml_parser_t *p = &r->parser;
  if (p->error == YAML_MEMORY_ERROR) FAIL(ERR_MEMORY, "%s: no memory to parse it", r->name);
  if (p->error == YAML_READER_ERROR)
    FAIL(ERR_CONFIG, "%s: byte %zu: %s; valid: UTF-8 text", r->name, p->problem_offset, p->problem);
  REFUSE(r, p->problem_mark, p->problem ? p->problem : "not YAML", "");
}

/* Room for child n of a list or map; grown by doubling. */
static enum err grow(struct yaml *y)
{
  if (y->n & (y->n - 1)) return ERR_OK; /* room is the next power of two */
  const size_t room = y->n ? 2 * (size_t)y->n : 1;
  struct yaml **values = realloc(y->values, room * sizeof *values);
  if (values == NULL) FAIL(ERR_MEMORY, "yaml: %zu children", room);
  y->values = values;
  if (y->kind == YAML_MAP) {
    struct yaml **keys = realloc(y->keys, room * sizeof *keys);
    if (keys == NULL) FAIL(ERR_MEMORY, "yaml: %zu keys", room);
    y->keys = keys;
  }
  return ERR_OK;
}

static enum err node_create(const struct reader *r, const yaml_event_t *event, struct yaml **out)
{
  const bool scalar = event->type == YAML_SCALAR_EVENT, map = event->type == YAML_MAPPING_START_EVENT;
  const yaml_char_t *anchor = scalar ? event->data.scalar.anchor
                              : map  ? event->data.mapping_start.anchor
                                     : event->data.sequence_start.anchor;
  const yaml_char_t *tag = scalar ? event->data.scalar.tag : map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
  if (anchor != NULL) REFUSE(r, event->start_mark, "anchors and aliases are not used here: anchor", (const char *)anchor);
  if (tag != NULL) REFUSE(r, event->start_mark, "tags are not used here: tag", (const char *)tag);
  if (scalar && strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
    REFUSE(r, event->start_mark, "a value holds a zero byte after", (const char *)event->data.scalar.value);

  struct yaml *y = calloc(1, sizeof *y);
  if (y == NULL) FAIL(ERR_MEMORY, "%s: %zu bytes", r->name, sizeof *y);
  y->kind = scalar ? YAML_SCALAR : map ? YAML_MAP : YAML_LIST;
  y->line = (int)event->start_mark.line + 1;
  y->column = (int)event->start_mark.column + 1;
  if (scalar) {
    y->text = strdup((const char *)event->data.scalar.value);
    if (y->text == NULL) {
      free(y);
      FAIL(ERR_MEMORY, "%s: %zu bytes", r->name, event->data.scalar.length + 1);
    }
  }
  *out = y;
  return ERR_OK;
}

static enum err read_node(struct reader *r, const yaml_event_t *event, int depth, struct yaml **out);

/* One child of `y`, beginning with `event`: a list's item, or a map's key and then its value. */
static enum err read_child(struct reader *r, struct yaml *y, const yaml_event_t *event, int depth)
{
  TRY(grow(y));
  struct yaml *key = NULL, *value = NULL;
  if (y->kind == YAML_LIST) {
    TRY(read_node(r, event, depth, &value));
    y->values[y->n++] = value;
    return ERR_OK;
  }
  if (event->type != YAML_SCALAR_EVENT) REFUSE(r, event->start_mark, "a key must be plain text", "");
  if (yaml_get(y, (const char *)event->data.scalar.value))
    REFUSE(r, event->start_mark, "repeated key", (const char *)event->data.scalar.value);
  TRY(node_create(r, event, &key));
  yaml_event_t after;
  enum err err = next(r, &after);
  if (err == ERR_OK) {
    err = read_node(r, &after, depth, &value);
    yaml_event_delete(&after);
  }
  if (err) {
    yaml_destroy(key);
    return err_trace(err, __FILE__, __LINE__);
  }
  y->keys[y->n] = key;
  y->values[y->n++] = value;
  return ERR_OK;
}

static enum err read_node(struct reader *r, const yaml_event_t *event, int depth, struct yaml **out)
{
  if (event->type == YAML_ALIAS_EVENT)
    REFUSE(r, event->start_mark, "anchors and aliases are not used here: alias", (const char *)event->data.alias.anchor);
  if (depth > DEPTH_MAX) REFUSE(r, event->start_mark, "nested too deeply", "");
  struct yaml *y;
  TRY(node_create(r, event, &y));
  const yaml_event_type_t end = y->kind == YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
  enum err err = ERR_OK;
  for (bool open = y->kind != YAML_SCALAR; open && !err;) {
    yaml_event_t child;
    err = next(r, &child);
    if (err) break;
    open = child.type != end;
    if (open) err = read_child(r, y, &child, depth + 1);
    yaml_event_delete(&child);
  }
  if (err) {
    yaml_destroy(y);
    return err_trace(err, __FILE__, __LINE__);
  }
  *out = y;
  return ERR_OK;
}

/* stream start, document start, the one node, document end, stream end */
static enum err read_stream(struct reader *r, struct yaml **out)
{
  struct yaml *root = NULL;
  enum err err = ERR_OK;
  for (bool open = true; open && !err;) {
    yaml_event_t event;
    err = next(r, &event);
    if (err) break;
    switch (event.type) {
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT: break;
    case YAML_STREAM_END_EVENT: open = false; break;
    case YAML_DOCUMENT_START_EVENT:
      if (root) err = refuse(r, event.start_mark, __FILE__, __LINE__, "a second document; valid: one", "");
      break;
    default: err = read_node(r, &event, 0, &root);
    }
    yaml_event_delete(&event);
  }
  if (!err && root == NULL) err = err_set(ERR_CONFIG, __FILE__, __LINE__, "%s:1:1: the file is empty", r->name);
  if (err) {
    yaml_destroy(root);
    return err_trace(err, __FILE__, __LINE__);
  }
  *out = root;
  return ERR_OK;
}

enum err yaml_parse(const char *text, const char *name, struct yaml **out)
{
  *out = NULL;
  struct reader r = {.name = name};
  if (!yaml_parser_initialize(&r.parser)) FAIL(ERR_MEMORY, "%s: no memory for a parser", name);
  yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, strlen(text));
  const enum err err = read_stream(&r, out);
  yaml_parser_delete(&r.parser);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}

enum err yaml_look(const char *what, const char *path)
{
  struct stat st;
  if (stat(path, &st) != 0 || access(path, R_OK) != 0) FAIL(ERR_CONFIG, "%s %s: %s", what, path, strerror(errno));
  if (S_ISDIR(st.st_mode)) FAIL(ERR_CONFIG, "%s %s: %s", what, path, strerror(EISDIR));
  return ERR_OK;
}

enum err yaml_read(const char *path, struct yaml **out)
{
  *out = NULL;
  enum err err;
  struct reader r = {.name = path};
  FILE *file = fopen(path, "rb");
  if (file == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  if (!yaml_parser_initialize(&r.parser)) FAIL_TO(close_file, ERR_MEMORY, "%s: no memory for a parser", path);
  yaml_parser_set_input_file(&r.parser, file);
  err = read_stream(&r, out);
  if (ferror(file)) { /* libyaml takes a failed read for the end of the text: EISDIR, for one */
    yaml_destroy(*out);
    *out = NULL;
    FAIL_TO(delete_parser, ERR_IO, "%s: cannot be read", path);
  }

delete_parser:
  yaml_parser_delete(&r.parser);
close_file:
  fclose(file);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
