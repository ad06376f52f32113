/* config_models.c - the models by name: shapes that people train and publish scaling on. */
#include "base/config.h"

#include <string.h>

#define OURS "this project"
#define GPT2 "openai/gpt-2 (Radford et al. 2019, Table 2, with the counts its README corrected)"
#define GPT3 "Brown et al. 2020, arXiv 2005.14165, Table 2.1"
#define MEGATRON "Narayanan et al. SC21, arXiv 2104.04473, Table 1"
#define KORTHIKANTI "Korthikanti et al. 2022, arXiv 2205.05198, Table 3"

/* Two rows of Brown et al. cannot be built as printed: 1.3B lists 24 heads of 128 for 2048
 * channels (16 fit), 13B lists 5140 channels for 40 heads of 128 (5120). */
const struct model_shape model_shapes[] = {
  /* name              source       layers heads hidden positions vocab  published */
  {"tiny",             OURS,        8,     12,   48,    24,       131,   0},
  {"tiny256",          OURS,        4,     4,    128,   128,      256,   0},
  {"bench",            OURS,        6,     6,    384,   256,      8192,  0},
  {"gpt2-124m",        GPT2,        12,    12,   768,   1024,     50257, 124e6},
  {"gpt2-355m",        GPT2,        24,    16,   1024,  1024,     50257, 355e6},
  {"gpt2-774m",        GPT2,        36,    20,   1280,  1024,     50257, 774e6},
  {"gpt2-1558m",       GPT2,        48,    25,   1600,  1024,     50257, 1558e6},
  {"gpt3-1.3b",        GPT3,        24,    16,   2048,  2048,     50257, 1.3e9},
  {"gpt3-6.7b",        GPT3,        32,    32,   4096,  2048,     50257, 6.7e9},
  {"gpt3-13b",         GPT3,        40,    40,   5120,  2048,     50257, 13.0e9},
  {"gpt3-175b",        GPT3,        96,    96,   12288, 2048,     50257, 175.0e9},
  {"megatron-1.7b",    MEGATRON,    24,    24,   2304,  2048,     51200, 1.7e9},
  {"megatron-3.6b",    MEGATRON,    30,    32,   3072,  2048,     51200, 3.6e9},
  {"megatron-7.5b",    MEGATRON,    36,    32,   4096,  2048,     51200, 7.5e9},
  {"megatron-18.4b",   MEGATRON,    40,    48,   6144,  2048,     51200, 18.4e9},
  {"megatron-39.1b",   MEGATRON,    48,    64,   8192,  2048,     51200, 39.1e9},
  {"megatron-76.1b",   MEGATRON,    60,    80,   10240, 2048,     51200, 76.1e9},
  {"megatron-145.6b",  MEGATRON,    80,    96,   12288, 2048,     51200, 145.6e9},
  {"megatron-310.1b",  MEGATRON,    96,    128,  16384, 2048,     51200, 310.1e9},
  {"megatron-529.6b",  MEGATRON,    105,   128,  20480, 2048,     51200, 529.6e9},
  {"megatron-1008b",   MEGATRON,    128,   160,  25600, 2048,     51200, 1008.0e9},
  {"korthikanti-22b",  KORTHIKANTI, 48,    64,   6144,  2048,     51200, 22e9},
  {"korthikanti-175b", KORTHIKANTI, 96,    96,   12288, 2048,     51200, 175e9},
  {"korthikanti-530b", KORTHIKANTI, 105,   128,  20480, 2048,     51200, 530e9},
  {"korthikanti-1t",   KORTHIKANTI, 128,   160,  25600, 2048,     51200, 1e12},
};
const int model_shapes_count = sizeof model_shapes / sizeof *model_shapes;

const struct model_shape *model_shape_find(const char *name)
{
  for (int i = 0; i < model_shapes_count; i++)
    if (strcmp(model_shapes[i].name, name) == 0) return &model_shapes[i];
  return NULL;
}
