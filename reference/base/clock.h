/* clock.h - monotonic time of this host.  All processes of one host share it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#ifdef __cplusplus
extern "C" {
#endif
double clock_ms(void);          /* milliseconds since an arbitrary start of this host */
double clock_thread_ms(void);   /* of processor time that the calling thread has had  */
void clock_sleep_ms(double ms); /* sleeps at least ms; returns at once for ms <= 0     */
#ifdef __cplusplus
}
#endif
#endif
