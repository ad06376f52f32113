/* schedule.h - the kinds of pipeline schedules: in which order a stage runs its passes. */
#ifndef BASE_SCHEDULE_H
#define BASE_SCHEDULE_H

enum schedule_kind {
  SCHEDULE_GPIPE,
  SCHEDULE_1F1B,
  SCHEDULE_INTERLEAVED,
  SCHEDULE_ZB_H1,
  SCHEDULE_FORWARD, /* evaluation: forwards only */
  SCHEDULES
};

#endif
