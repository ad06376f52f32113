/* host_warp.cpp - the warp functions that are no templates, each one meeting of its lanes. */
#include "host_internal.h"

enum { LANES = 32 };

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

struct exchange {
  const void *mine;
  size_t bytes;
  char *all;
};
static void do_exchange(void *const lanes[32], unsigned)
{
  const exchange *first = static_cast<exchange *>(lanes[0]);
  for (int lane = 0; lane < LANES; lane++)
    memcpy(first->all + lane * first->bytes, static_cast<exchange *>(lanes[lane])->mine, first->bytes);
  for (int lane = 1; lane < LANES; lane++) memcpy(static_cast<exchange *>(lanes[lane])->all, first->all, LANES * first->bytes);
}
void cuda_host_warp_exchange(const void *mine, size_t bytes, void *all_lanes)
{
  exchange e = {mine, bytes, static_cast<char *>(all_lanes)};
  cuda_host_warp(0xffffffffu, &e, do_exchange, "cuda_host_warp_exchange");
}
