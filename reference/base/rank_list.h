/* rank_list.h - ranks of a job as text: `all`, or numbers such as 0,2,5. */
#ifndef BASE_RANK_LIST_H
#define BASE_RANK_LIST_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each number of the list is a rank of `ranks`.  Fails: ERR_CONFIG naming `key`, what is wrong and what is valid. */
enum err rank_list_check(const char *key, const char *list, long long ranks);
/* Of a list that was checked. */
bool rank_list_has(const char *list, int rank);

#ifdef __cplusplus
}
#endif
#endif
