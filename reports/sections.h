/* sections.h - the sections of a report, each a pure function of the evidence.
 *
 * A section writes nothing when there is no evidence of its kind.  Fails: ERR_IO, ERR_MEMORY.
 */
#ifndef REPORTS_SECTIONS_H
#define REPORTS_SECTIONS_H
#include "reports/evidence.h"
#include "reports/page.h"

enum err section_verdict(const struct evidence *e, struct page *p); /* verdict, what failed, why     */
enum err section_scaling(const struct evidence *e, struct page *p); /* the one table, efficiency     */
enum err section_pipeline(const struct evidence *e, struct page *p); /* bubbles, stages in time      */
enum err section_overlap(const struct evidence *e, struct page *p); /* hidden, exposed, bare     */
enum err section_imbalance(const struct evidence *e, struct page *p); /* policies, busy ranks, lengths */
enum err section_blame(const struct evidence *e, struct page *p);   /* who is waited for, at what cost */
enum err section_timeline(const struct evidence *e, struct page *p); /* the longest step, stream by stream */
enum err section_time(const struct evidence *e, struct page *p);    /* busy and waiting by rank      */
enum err section_memory(const struct evidence *e, struct page *p);  /* stacked, beside predicted     */
enum err section_loss(const struct evidence *e, struct page *p);    /* truth, serial, sharded, bound */
enum err section_gradients(const struct evidence *e, struct page *p); /* worst error per parameter   */
enum err section_frameworks(const struct evidence *e, struct page *p); /* other frameworks beside the truth */
enum err section_faults(const struct evidence *e, struct page *p);  /* planted x diagnosed           */
enum err section_coverage(const struct evidence *e, struct page *p); /* layouts of conformance       */
enum err section_cases(const struct evidence *e, struct page *p);   /* every case and check          */
enum err section_machine(const struct evidence *e, struct page *p); /* machine and versions          */

/* The columns of results.csv: judged cases and scaling points. */
enum err results_csv(const struct evidence *e);
enum err junit_xml(const struct evidence *e);

#endif
