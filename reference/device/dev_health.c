/* dev_health.c - what a card's account of itself means for a run. */
#include "device/dev_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* NVML's bits of clock event reasons.  Idle, application clocks and the display are no fault. */
static const struct {
  int64_t bit;
  const char *text;
  bool fault; /* the machine is not as it should be */
} reasons[] = {
    {0x04, "power limit", false},
    {0x08, "hardware slowdown", true},
    {0x10, "sync boost", false},
    {0x20, "heat (driver)", true},
    {0x40, "heat (hardware)", true},
    {0x80, "power brake", true},
};
enum { REASONS = sizeof reasons / sizeof *reasons };

static void list(int64_t bits, bool faults_only, char *out, size_t bytes)
{
  size_t used = 0;
  snprintf(out, bytes, "%s", "");
  for (int i = 0; bits > 0 && i < REASONS && used < bytes; i++)
    if ((bits & reasons[i].bit) && (reasons[i].fault || !faults_only))
      used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", reasons[i].text);
}

void dev_health_reasons(const struct dev_health *h, char *out, size_t bytes) { list(h->reasons, false, out, bytes); }

enum err dev_health_judge(const struct dev_health *before, const struct dev_health *after, bool timed)
{
  char faults[200];
  if (before->ecc_uncorrected >= 0 && after->ecc_uncorrected > before->ecc_uncorrected)
    FAIL(ERR_INVALID, "the card lost data: %" PRId64 " uncorrected ECC errors during the run",
         after->ecc_uncorrected - before->ecc_uncorrected);
  if (!timed) return ERR_OK;
  if (before->held_by_heat_ns >= 0 && after->held_by_heat_ns > before->held_by_heat_ns)
    FAIL(ERR_INVALID, "the card was held back by heat for %.3f s of the timed steps (now %" PRId64 " C)",
         1e-9 * (double)(after->held_by_heat_ns - before->held_by_heat_ns), after->temperature_c);
  list(after->reasons, true, faults, sizeof faults);
  if (faults[0] != '\0')
    FAIL(ERR_INVALID, "the card is held back by %s at the end of the timed steps (%" PRId64 " of %" PRId64 " MHz)", faults,
         after->clock_mhz, after->clock_max_mhz);
  return ERR_OK;
}

void dev_health(struct dev *d, struct dev_health *out)
{
  *out = (struct dev_health){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  d->backend->health(d, out);
}

bool dev_driver_usage(const struct dev *d, struct dev_driver_usage *out) { return d->backend->driver_usage(d, out); }

void dev_describe(const struct dev *d, char *out, size_t bytes)
{
  snprintf(out, bytes, "%s", "");
  d->backend->describe(d, out, bytes);
}
