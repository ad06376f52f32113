/* err.c - reason and trail of the last failure, one pair a thread. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char text[1024];
static _Thread_local char trail[512];
static void (*bug_hook)(void);

static const char *file_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void trail_add(const char *file, int line)
{
  const size_t used = strlen(trail);
  snprintf(trail + used, sizeof trail - used, "%s%s:%d", used ? " <- " : "", file_name(file), line);
}

enum err err_set(enum err code, const char *file, int line, const char *format, ...)
{
  char fresh[sizeof text]; /* the arguments may point into the old text */
  va_list args;
  va_start(args, format);
  vsnprintf(fresh, sizeof fresh, format, args);
  va_end(args);
  memcpy(text, fresh, sizeof text);
  trail[0] = '\0';
  trail_add(file, line);
  return code;
}

enum err err_trace(enum err code, const char *file, int line)
{
  trail_add(file, line);
  return code;
}

const char *err_text(void) { return text; }
const char *err_trail(void) { return trail; }

void err_clear(void)
{
  text[0] = '\0';
  trail[0] = '\0';
}

const char *err_name(enum err code)
{
  switch (code) {
  case ERR_OK: return "ok";
  case ERR_UNAVAILABLE: return "unavailable";
  case ERR_CONFIG: return "config";
  case ERR_ARG: return "argument";
  case ERR_FORMAT: return "format";
  case ERR_IO: return "io";
  case ERR_MEMORY: return "memory";
  case ERR_NUMERIC: return "numeric";
  case ERR_DEVICE: return "device";
  case ERR_COMM: return "comm";
  case ERR_INVALID: return "invalid";
  }
  return "unknown";
}

enum status err_status(enum err code)
{
  switch (code) {
  case ERR_OK: return STATUS_PASS;
  case ERR_CONFIG: return STATUS_USAGE;
  case ERR_UNAVAILABLE:
  case ERR_MEMORY:
  case ERR_IO:
  case ERR_INVALID: return STATUS_INVALID;
  default: return STATUS_FAIL;
  }
}

void err_save(struct err_saved *out, enum err code)
{
  out->code = code;
  memcpy(out->text, text, sizeof text);
  memcpy(out->trail, trail, sizeof trail);
}

enum err err_restore(const struct err_saved *saved)
{
  memcpy(text, saved->text, sizeof text);
  memcpy(trail, saved->trail, sizeof trail);
  return saved->code;
}

void err_on_bug(void (*hook)(void)) { bug_hook = hook; }

void err_bug(const char *file, int line, const char *condition)
{
  fprintf(stderr, "shardmark: bug at %s:%d: %s\n", file_name(file), line, condition);
  fflush(stderr);
  if (bug_hook) bug_hook();
  abort();
}
