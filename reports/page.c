/* page.c - the HTML and the Markdown of a report, side by side. */
#include "reports/page.h"

#include "reports/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct page {
  char dir[1024];
  FILE *html, *markdown;
};

/* One column, wide tables scroll by themselves; a dark page turns figures' lightness over. */
static const char style[] =
  ":root{color-scheme:light dark;--text:#1d2126;--soft:#5b6470;--back:#fff;--line:#d9dee4;--card:#f5f7f9;"
  "--pass:#11734b;--fail:#b3261e;--unsure:#8a5a00}\n"
  "@media(prefers-color-scheme:dark){:root{--text:#e6e9ed;--soft:#9aa4b0;--back:#14181d;--line:#333b45;--card:#1c2229;"
  "--pass:#5fd39e;--fail:#ff8a80;--unsure:#f2c166}figure svg{filter:invert(1) hue-rotate(180deg)}}\n"
  "*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:64rem;font:16px/1.5 system-ui,sans-serif;"
  "color:var(--text);background:var(--back)}\n"
  "h1{font-size:1.4rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}\n"
  ".verdict{padding:1rem 1.2rem;border-radius:.5rem;background:var(--card);border-left:.5rem solid var(--unsure)}"
  ".verdict b{font-size:1.5rem}.verdict.PASS{border-color:var(--pass)}.verdict.FAIL{border-color:var(--fail)}\n"
  "p,li{max-width:46rem;overflow-wrap:anywhere}.scroll{overflow-x:auto;margin:.8rem 0}"
  "table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}"
  "caption{text-align:left;color:var(--soft);padding-bottom:.3rem;font-size:.86rem}"
  "th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}"
  "th{color:var(--soft);font-weight:600;white-space:nowrap}td.number{text-align:right;white-space:nowrap}td.text{white-space:nowrap}td.long{min-width:18rem;max-width:28rem}\n"
  "td.pass{color:var(--pass);font-weight:600}td.fail{color:var(--fail);font-weight:700}td.unsure{color:var(--unsure);font-weight:600}\n"
  "figure{margin:1rem 0;overflow-x:auto}figure svg{width:100%;height:auto;max-width:47.5rem;min-width:32rem}figcaption{font-weight:600;margin-bottom:.3rem}"
  "summary{cursor:pointer;color:var(--soft)}\n";

enum err page_open(const char *dir, const char *title, struct page **out)
{
  enum err err;
  *out = NULL;
  struct page *p = calloc(1, sizeof *p);
  if (p == NULL) FAIL(ERR_MEMORY, "page: %zu bytes", sizeof *p);
  snprintf(p->dir, sizeof p->dir, "%s", dir);
  TRY_TO(free_page, files_open(dir, "report.html", &p->html));
  TRY_TO(close_html, files_open(dir, "report.md", &p->markdown));
  fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>", p->html);
  table_escape(title, p->html);
  fprintf(p->html, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
  table_escape(title, p->html);
  fputs("</h1>\n", p->html);
  fprintf(p->markdown, "# %s\n\n", title);
  *out = p;
  return ERR_OK;

close_html:
  files_close(p->html, dir, "report.html", false);
free_page:
  free(p);
  return err;
}

enum err page_close(struct page *p, bool keep)
{
  if (p == NULL) return ERR_OK;
  fputs("</body></html>\n", p->html);
  const enum err html = files_close(p->html, p->dir, "report.html", keep);
  const enum err markdown = files_close(p->markdown, p->dir, "report.md", keep && html == ERR_OK);
  free(p);
  return html ? html : markdown;
}

void page_verdict(struct page *p, const char *verdict, const char *sentence)
{
  fprintf(p->html, "<div class=\"verdict %s\"><b>%s</b><br>", verdict, verdict);
  table_escape(sentence, p->html);
  fputs("</div>\n", p->html);
  fprintf(p->markdown, "**%s** %s\n\n", verdict, sentence);
}

void page_heading(struct page *p, const char *text)
{
  fputs("<h2>", p->html);
  table_escape(text, p->html);
  fputs("</h2>\n", p->html);
  fprintf(p->markdown, "## %s\n\n", text);
}

void page_text(struct page *p, const char *format, ...)
{
  char text[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fputs("<p>", p->html);
  table_escape(text, p->html);
  fputs("</p>\n", p->html);
  fprintf(p->markdown, "%s\n\n", text);
}

void page_list(struct page *p, const char *const *items, int n)
{
  fputs("<ul>", p->html);
  for (int i = 0; i < n; i++) {
    fputs("<li>", p->html);
    table_escape(items[i], p->html);
    fputs("</li>\n", p->html);
    fprintf(p->markdown, "- %s\n", items[i]);
  }
  fputs("</ul>\n", p->html);
  fputc('\n', p->markdown);
}

void page_table(struct page *p, const struct table *t, bool folded)
{
  if (json_array_size(t->rows) == 0) {
    page_text(p, "%s: no rows.", t->title);
    return;
  }
  if (folded) {
    fputs("<details><summary>", p->html);
    table_escape(t->title, p->html);
    fprintf(p->html, " (%zu rows)</summary>", json_array_size(t->rows));
  }
  table_html(t, p->html);
  if (folded) fputs("</details>\n", p->html);
  table_markdown(t, p->markdown);
}

/* The drawing of plots/<id>.svg from its <svg on, with its own text for screen readers. */
static enum err inline_svg(struct page *p, const struct figure *f)
{
  char path[1200], line[65536];
  bool inside = false;
  snprintf(path, sizeof path, "%s/plots/%s.svg", p->dir, figure_id(f));
  FILE *in = fopen(path, "r");
  if (in == NULL) FAIL(ERR_IO, "%s: %s", path, strerror(errno));
  while (fgets(line, sizeof line, in)) {
    char *start = inside ? line : strstr(line, "<svg");
    if (start == NULL) continue;
    if (!inside) {
      fputs("<svg role=\"img\" aria-label=\"", p->html);
      table_escape(figure_title_of(f), p->html);
      fputc('"', p->html);
      start += strlen("<svg");
    }
    inside = true;
    fputs(start, p->html);
  }
  fclose(in);
  if (!inside) FAIL(ERR_FORMAT, "%s: no drawing in it", path);
  return ERR_OK;
}

enum err page_figure(struct page *p, const struct figure *f)
{
  const char *missing;
  if (figure_points(f) == 0) return ERR_OK;
  TRY(figure_draw(f, p->dir, &missing));
  fputs("<figure><figcaption>", p->html);
  table_escape(figure_title_of(f), p->html);
  fputs("</figcaption>\n", p->html);
  if (missing) {
    fputs("<p>Not drawn: ", p->html);
    table_escape(missing, p->html);
    fprintf(p->html, "</p></figure>\n");
    fprintf(p->markdown, "*%s* (not drawn: %s)\n\n", figure_title_of(f), missing);
    return ERR_OK;
  }
  TRY(inline_svg(p, f));
  fputs("</figure>\n", p->html);
  fprintf(p->markdown, "![%s](plots/%s.svg)\n\n", figure_title_of(f), figure_id(f));
  return ERR_OK;
}
