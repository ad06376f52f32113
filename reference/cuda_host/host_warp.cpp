/* host_warp.cpp - the warp functions that are no templates, each one meeting of its lanes. */
#include "host_internal.h"

static void nothing(void *const[32], unsigned) {}
void __syncwarp(unsigned mask) { cuda_host_warp(mask, NULL, nothing, "__syncwarp"); }

struct ballot {
  int predicate;
  unsigned votes;
};
static void count_ballot(void *const lanes[32], unsigned mask)
{
  unsigned votes = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    votes |= (unsigned)(static_cast<ballot *>(lanes[lane])->predicate != 0) << lane;
  }
  for (unsigned left = mask; left != 0; left &= left - 1) static_cast<ballot *>(lanes[__builtin_ctz(left)])->votes = votes;
}
unsigned __ballot_sync(unsigned mask, int predicate)
{
  ballot mine = {predicate, 0};
  cuda_host_warp(mask, &mine, count_ballot, "__ballot_sync");
  return mine.votes;
}
