/* lengths.h - published distributions of document lengths. */
#ifndef DATA_LENGTHS_H
#define DATA_LENGTHS_H

#include <stdint.h>

enum { LENGTHS_WIKIPEDIA = 512, LENGTHS_SQUAD = 384 };
/* [i]: documents of i + 1 tokens. */
extern const int64_t lengths_wikipedia[LENGTHS_WIKIPEDIA];
extern const int64_t lengths_squad[LENGTHS_SQUAD];

#endif
