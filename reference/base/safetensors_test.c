/* safetensors_test.c - what is written is read, and no damaged file is believed. */
#include "base/safetensors.h"
#include "testing/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static char path[64];                   /* a file, where renaming matters                */
static char memory_path[64];            /* one without a disk, for thousands of rewrites */
static int memory;
static float matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
static double vector[5] = {0.1, 0.2, 0.3, 0.4, 0.5};
static uint8_t bytes[3] = {7, 8, 9};
static int32_t whole[2] = {-1, 1 << 30};

enum { N = 5 };
static void make_list(struct safetensor list[N])
{
  list[0] = (struct safetensor){"bytes", tensor_at(bytes, DTYPE_U8, 1, 3), 1};
  list[1] = (struct safetensor){"h.0.attn.c_attn.weight", tensor_at(matrix, DTYPE_F32, 2, 3), 2};
  list[2] = (struct safetensor){"v\xc3\xa4\"", tensor_at(vector, DTYPE_F64, 1, 5), 1};
  list[3] = (struct safetensor){"none", tensor_at(matrix, DTYPE_F32, 0, 7), 2};
  list[4] = (struct safetensor){"row", tensor_at(whole, DTYPE_I32, 1, 2), 2};
}
static const char *const meta[] = {"format", "pt", "step", "3", NULL};

static void what_is_written_is_read(void)
{
  struct safetensor list[N];
  make_list(list);
  struct safetensors *f;
  CHECK_OK(safetensors_write(path, list, N, meta));
  if (!CHECK_OK(safetensors_open(path, &f))) return;
  CHECK(safetensors_count(f) == N);
  for (int i = 0; i < N; i++) {
    const struct safetensor *t = safetensors_find(f, list[i].name);
    if (!CHECK(t != NULL)) continue;
    CHECK(t->rank == list[i].rank && t->data.type == list[i].data.type);
    CHECK(t->data.rows == list[i].data.rows && t->data.cols == list[i].data.cols && tensor_contiguous(&t->data));
    CHECK((uintptr_t)t->data.at % dtype_bytes(t->data.type) == 0);
    CHECK_SAME_BITS(t->data.at, list[i].data.at, (size_t)tensor_count(&t->data) * dtype_bytes(t->data.type));
  }
  CHECK(safetensors_find(f, "nobody") == NULL && safetensors_find(f, "__metadata__") == NULL);
  CHECK(strcmp(safetensors_meta(f, "step"), "3") == 0 && safetensors_meta(f, "nothing") == NULL);
  CHECK(strcmp(safetensors_get(f, 0)->name, safetensors_find(f, safetensors_get(f, 0)->name)->name) == 0);
  safetensors_close(f);
  char temporary[80];
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  CHECK(access(temporary, F_OK) != 0);
}

static void a_file_without_tensors_is_a_file(void)
{
  struct safetensors *f;
  CHECK_OK(safetensors_write(path, NULL, 0, NULL));
  if (!CHECK_OK(safetensors_open(path, &f))) return;
  CHECK(safetensors_count(f) == 0 && safetensors_meta(f, "x") == NULL);
  safetensors_close(f);
}

static void lists_that_make_no_file_are_refused(void)
{
  struct safetensor list[N];
  make_list(list);
  list[4].name = "bytes";
  CHECK_ERR(safetensors_write(path, list, N, NULL), ERR_ARG);
  CHECK_TEXT_HAS(err_text(), "'bytes' is listed twice");
  make_list(list);
  list[1].data.stride = 4;
  CHECK_ERR(safetensors_write(path, list, N, NULL), ERR_ARG);
  make_list(list);
  list[1].rank = 1;
  CHECK_ERR(safetensors_write(path, list, N, NULL), ERR_ARG);
  make_list(list);
  list[1].name = "__metadata__";
  CHECK_ERR(safetensors_write(path, list, N, NULL), ERR_ARG);
  make_list(list);
  list[1].name = "\xff";
  CHECK_ERR(safetensors_write(path, list, N, NULL), ERR_ARG);
  static const char *const bad_meta[] = {"path", "\xff", NULL};
  make_list(list);
  CHECK_ERR(safetensors_write(path, list, N, bad_meta), ERR_ARG);
}

/* A limit on the file's size stands for a full disk: write() fails half-way. */
static void a_failed_write_keeps_the_old_file(void)
{
  struct safetensor list[N];
  make_list(list);
  CHECK_OK(safetensors_write(path, list, N, meta));
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 300;
  setrlimit(RLIMIT_FSIZE, &small);
  const enum err err = safetensors_write(path, list, N, NULL);
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(err == ERR_IO);
  CHECK_TEXT_HAS(err_text(), ".tmp: File too large");
  char temporary[80];
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  CHECK(access(temporary, F_OK) != 0);
  struct safetensors *f;
  if (CHECK_OK(safetensors_open(path, &f))) CHECK(safetensors_meta(f, "step") != NULL);
  safetensors_close(f);
  CHECK_ERR(safetensors_write("/nonexistent/file", list, N, NULL), ERR_IO);
}

static void put(const void *at, size_t n)
{
  CHECK(ftruncate(memory, 0) == 0 && pwrite(memory, at, n, 0) == (ssize_t)n);
}

/* A file of this header and `data` bytes of zeros. */
static void put_header(const char *header, size_t data)
{
  unsigned char file[2048] = {0};
  const size_t length = strlen(header);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
  memcpy(file + 8, header, length);
  put(file, 8 + length + data);
}

static void headers_that_lie_are_refused(void)
{
  static const struct {
    const char *header;
    size_t data;
    const char *said;
  } bad[] = {
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fill"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "of 4 bytes of data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "lies at [8, 0)"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.0,8.0]}}", 8, "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "not two whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "shape is not whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", 8, "shape is not whole numbers"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "shape overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "do not fill"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0, "header: "},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "4 bytes of data are described, 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "begins at byte 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "'b' begins at byte 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "not exactly dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not exactly"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "not exactly"},
    {"{\"a\":3}", 0, "not exactly"},
    {"{\"__metadata__\":{\"a\":3}}", 0, "is not text"},
    {"{\"__metadata__\":[]}", 0, "is not an object"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"", 0, "does not begin with '{'"},
    {"{} x", 0, "header: "},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct safetensors *f = (struct safetensors *)&i;
    put_header(bad[i].header, bad[i].data);
    CHECK_ERR(safetensors_open(memory_path, &f), ERR_FORMAT);
    CHECK_TEXT_HAS(err_text(), bad[i].said);
    CHECK_TEXT_HAS(err_text(), memory_path);
    CHECK(f == NULL);
  }
  put("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  struct safetensors *f;
  CHECK_ERR(safetensors_open(memory_path, &f), ERR_FORMAT);
  CHECK_ERR(safetensors_open("/nonexistent/file", &f), ERR_IO);
  CHECK_ERR(safetensors_open("/tmp", &f), ERR_IO);
}

/* Published GPT-2 files hold masks of rank 4; their bytes are checked like any other's. */
static void other_ranks_and_types_are_passed_over(void)
{
  put_header("{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
             "\"bias\":{\"dtype\":\"F32\",\"shape\":[1,1,1,2],\"data_offsets\":[3,11]},"
             "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[11,15]},"
             "\"odd\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[15,23]}}", 23);
  struct safetensors *f;
  if (!CHECK_OK(safetensors_open(memory_path, &f))) return;
  CHECK(safetensors_count(f) == 1);
  const struct safetensor *t = safetensors_find(f, "odd");
  CHECK(t != NULL && (uintptr_t)t->data.at % 4 == 0 && *(float *)t->data.at == 0); /* lay at an odd byte: copied */
  safetensors_close(f);
}

/* Reads every byte that the file claims: a wrong one ends the test by a signal. */
static void open_and_touch(void)
{
  struct safetensors *f;
  const enum err err = safetensors_open(memory_path, &f);
  if (err) {
    CHECK(err == ERR_FORMAT && f == NULL && err_text()[0] != '\0');
    return;
  }
  volatile unsigned sum = 0;
  for (int i = 0; i < safetensors_count(f); i++) {
    const struct safetensor *t = safetensors_get(f, i);
    const size_t n = (size_t)tensor_count(&t->data) * dtype_bytes(t->data.type);
    for (size_t b = 0; b < n; b++) sum += ((unsigned char *)t->data.at)[b];
  }
  safetensors_close(f);
}

static void no_damage_is_followed(void)
{
  struct safetensor list[N];
  make_list(list);
  CHECK_OK(safetensors_write(path, list, N, meta));
  unsigned char whole_file[2048];
  FILE *file = fopen(path, "rb");
  const size_t n = fread(whole_file, 1, sizeof whole_file, file);
  fclose(file);

  size_t refused = 0;
  for (size_t length = 0; length < n; length++) { /* cut anywhere: data or header is short */
    put(whole_file, length);
    struct safetensors *f;
    refused += safetensors_open(memory_path, &f) == ERR_FORMAT;
  }
  CHECK(refused == n);

  size_t header = 8;
  for (int i = 0; i < 8; i++) header += (size_t)whole_file[i] << 8 * i;
  static const unsigned char others[] = {0x00, 0xff, '0', '9', '-', '"', '{', ']', ','};
  for (size_t at = 0; at < header; at++) {
    const unsigned char keep = whole_file[at];
    for (int bit = 0; bit < 8; bit++) {
      whole_file[at] = (unsigned char)(keep ^ 1u << bit);
      put(whole_file, n);
      open_and_touch();
    }
    for (size_t o = 0; o < sizeof others; o++) {
      whole_file[at] = others[o];
      put(whole_file, n);
      open_and_touch();
    }
    whole_file[at] = keep;
  }
}

static void no_memory_is_told_and_leaks_nothing(void)
{
  struct safetensor list[N];
  make_list(list);
  bool failed = true;
  for (long k = 1; failed && k < 100; k++) {
    check_fail_allocation(k);
    const enum err err = safetensors_write(path, list, N, meta);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(err == (failed ? ERR_MEMORY : ERR_OK));
  }
  CHECK(!failed);
  put_header("{\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"odd\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[1,9]}}", 9);
  failed = true;
  for (long k = 1; failed && k < 100; k++) {
    struct safetensors *f = NULL;
    check_fail_allocation(k);
    const enum err err = safetensors_open(memory_path, &f);
    failed = check_allocation_failed();
    check_fail_allocation(0);
    CHECK(err == (failed ? ERR_MEMORY : ERR_OK) && (f == NULL) == failed);
    safetensors_close(f);
  }
  CHECK(!failed);
}

int main(void)
{
  static const struct test tests[] = {
    TEST(what_is_written_is_read),
    TEST(a_file_without_tensors_is_a_file),
    TEST(lists_that_make_no_file_are_refused),
    TEST(a_failed_write_keeps_the_old_file),
    TEST(headers_that_lie_are_refused),
    TEST(other_ranks_and_types_are_passed_over),
    TEST(no_damage_is_followed),
    TEST(no_memory_is_told_and_leaks_nothing),
  };
  strcpy(path, "/tmp/safetensors_test.XXXXXX");
  close(mkstemp(path));
  memory = memfd_create("safetensors_test", MFD_CLOEXEC);
  snprintf(memory_path, sizeof memory_path, "/proc/self/fd/%d", memory);
  const int status = test_main("safetensors", tests, sizeof tests / sizeof *tests);
  unlink(path);
  return status;
}
