/* page.h - one page written twice at once: HTML for eyes, Markdown for reviews.
 *
 * What the sections say goes through here, so the two cannot differ.
 */
#ifndef REPORTS_PAGE_H
#define REPORTS_PAGE_H
#include "reports/figure.h"
#include "reports/table.h"

struct page;
/* Opens dir/report.html and dir/report.md (as .tmp until page_close()).  Fails: ERR_IO. */
enum err page_open(const char *dir, const char *title, struct page **out);
/* keep: put both in place; otherwise remove them.  NULL is allowed.  Fails: ERR_IO (a full disk). */
enum err page_close(struct page *p, bool keep);

void page_verdict(struct page *p, const char *verdict, const char *sentence); /* the first thing seen */
void page_heading(struct page *p, const char *text);
void page_text(struct page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_list(struct page *p, const char *const *items, int n);
/* folded: behind a click on the page.  An empty table says so in one line. */
void page_table(struct page *p, const struct table *t, bool folded);
/* Draws it and puts it in; its title is its caption.  Nothing for a figure without points.
 * Fails: ERR_IO. */
enum err page_figure(struct page *p, const struct figure *f);

#endif
