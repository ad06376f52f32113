/* figure_draw.c - one gnuplot script a figure, its data in the script itself. */
#include "reports/figure_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Okabe and Ito's colours: the colour-blind tell them apart too. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888", "#6a4c93"};
enum { COLOURS = sizeof colours / sizeof *colours };

/* A text in gnuplot's double quotes, the signs of its enhanced mode taken literally. */
static void quoted(FILE *out, const char *text)
{
  fputc('"', out);
  for (; *text; text++) {
    if (strchr("_^@&~{}", *text)) fprintf(out, "\\\\%c", *text);
    else if (*text == '"' || *text == '\\') fprintf(out, "\\%c", *text);
    else fputc(*text == '\n' ? ' ' : *text, out);
  }
  fputc('"', out);
}

/* Beside a tic, where % begins a format of numbers. */
static void tic(FILE *out, const char *name)
{
  char text[160];
  size_t n = 0;
  for (; *name && n + 2 < sizeof text; name++) {
    if (*name == '%') text[n++] = '%';
    text[n++] = *name;
  }
  text[n] = '\0';
  quoted(out, text);
}

/* In lines of at most `columns` bytes, broken at blanks; a longer word stands alone. */
static void quoted_lines(FILE *out, const char *text, int columns)
{
  char line[512];
  while (*text) {
    int end = (int)strlen(text);
    if (end > columns) {
      end = columns;
      while (end > 0 && text[end] != ' ') end--;
      if (end == 0) end = (int)strcspn(text, " ");
    }
    snprintf(line, sizeof line, "%.*s", end, text);
    quoted(out, line);
    text += end;
    if (*text == ' ' && *++text) fputs(".\"\\n\".", out);
  }
}

static bool drawable(const struct figure *f, double y) { return isfinite(y) && (!f->log_y || y > 0.0); }

/* The top of what stands below series `last` at x in the same place: bars stack. */
static double below(const struct figure *f, int last, double x)
{
  double sum = 0.0;
  for (int i = 0; i < last; i++) {
    const struct figure_series *s = &f->series[i];
    if (s->style != FIGURE_BAR || s->place != f->series[last].place || s->places != f->series[last].places) continue;
    for (int k = 0; k < s->n; k++)
      if (s->points[k].x == x && isfinite(s->points[k].y)) sum += s->points[k].y;
  }
  return sum;
}

static void write_point(FILE *out, const struct figure *f, int series, const struct figure_point *p)
{
  const struct figure_series *s = &f->series[series];
  switch (s->style) {
  case FIGURE_BAR: /* centre, base, left, right, base, top */
    if (isfinite(p->y)) {
      const double wide = 0.8 / s->places, left = p->x - 0.4 + wide * s->place + 0.02, base = below(f, series, p->x);
      fprintf(out, "%.9g %.9g %.9g %.9g %.9g %.9g\n", left + wide / 2, base, left, left + wide - 0.04, base, base + p->y);
    }
    return;
  case FIGURE_SPAN: /* middle, row, left, right, top, bottom, label */
    if (isfinite(p->lo) && isfinite(p->hi))
      fprintf(out, "%.9g %.9g %.9g %.9g %.9g %.9g \"%s\"\n", (p->lo + p->hi) / 2, p->y, p->lo, p->hi, p->y - 0.38, p->y + 0.38, p->label);
    return;
  case FIGURE_HEAT: /* middle, row, left, right, top, bottom, value */
    if (isfinite(p->x))
      fprintf(out, "%.9g %.9g %.9g %.9g %.9g %.9g %.9g\n", (p->lo + p->hi) / 2, p->y, p->lo, p->hi, p->y - 0.5, p->y + 0.5, p->x);
    return;
  case FIGURE_BAND:
    if (drawable(f, p->lo) && drawable(f, p->hi)) fprintf(out, "%.9g %.9g %.9g\n", p->x, p->lo, p->hi);
    return;
  default:
    if (!drawable(f, p->y)) fputc('\n', out); /* a gap */
    else
      fprintf(out, "%.9g %.9g %.9g %.9g\n", p->x, p->y, isfinite(p->lo) ? p->lo : p->y, isfinite(p->hi) ? p->hi : p->y);
  }
}

static bool has_interval(const struct figure_series *s)
{
  if (s->style == FIGURE_BAR || s->style == FIGURE_BAND || s->style == FIGURE_SPAN || s->style == FIGURE_HEAT) return false;
  for (int k = 0; k < s->n; k++)
    if (isfinite(s->points[k].lo) && isfinite(s->points[k].hi) && s->points[k].hi > s->points[k].lo) return true;
  return false;
}

static bool has_labels(const struct figure_series *s)
{
  for (int k = 0; k < s->n; k++)
    if (s->points[k].label[0]) return true;
  return false;
}

static bool has_data(const struct figure *f, const struct figure_series *s)
{
  for (int k = 0; k < s->n; k++) {
    const struct figure_point *p = &s->points[k];
    if (s->style == FIGURE_BAND ? drawable(f, p->lo) && drawable(f, p->hi) : drawable(f, p->y)) return true;
  }
  return false;
}

static void write_plot(FILE *out, const struct figure *f)
{
  const char *comma = "plot";
  for (int i = 0; i < f->n_series; i++) {
    const struct figure_series *s = &f->series[i];
    const char *colour = colours[s->colour % COLOURS];
    if (!has_data(f, s)) continue;
    fprintf(out, "%s $d%d using ", comma, i);
    switch (s->style) {
    case FIGURE_SPAN:
      fprintf(out, "1:2:3:4:5:6 with boxxyerror fs %s border lc rgb '#ffffff' fc rgb '%s'", s->pale ? "transparent solid 0.45" : "solid 0.9", colour);
      break;
    case FIGURE_HEAT: fputs("1:2:3:4:5:6:7 with boxxyerror fs solid 1 noborder lc palette", out); break;
    case FIGURE_BAR: fprintf(out, "1:2:3:4:5:6 with boxxyerror fs %s noborder lc rgb '%s'", s->pale ? "transparent solid 0.35" : "solid 0.9", colour); break;
    case FIGURE_BAND: fprintf(out, "1:2:3 with filledcurves fs transparent solid 0.2 noborder lc rgb '%s'", colour); break;
    case FIGURE_POINTS: fprintf(out, "1:2 with points pt 7 ps 0.7 lc rgb '%s'", colour); break;
    case FIGURE_LINE: fprintf(out, "1:2 with %s lc rgb '%s'", s->n > 60 ? "lines lw 1" : "linespoints lw 2 pt 7 ps 0.5", colour); break;
    case FIGURE_DASHES: fprintf(out, "1:2 with lines lw 1.5 dt 2 lc rgb '%s'", colour); break;
    }
    const bool in_key = s->name[0] && s->style != FIGURE_HEAT;
    fputs(in_key ? " title " : " notitle", out);
    if (in_key) quoted(out, s->name);
    comma = ",";
    if (has_labels(s)) fprintf(out, ", $d%d using 1:2:7 with labels font ',9' tc rgb '%s' notitle", i, s->pale ? "#111111" : "#ffffff");
    if (has_interval(s)) fprintf(out, ", $d%d using 1:2:3:4 with yerrorbars pt 7 ps 0.5 lw 1.5 lc rgb '%s' notitle", i, colour);
  }
  fputc('\n', out);
}

/* Whole x values close together: every one gets its tick, and nothing between. */
static bool few_steps(const struct figure *f)
{
  double least = INFINITY, most = -INFINITY;
  for (int i = 0; i < f->n_series; i++)
    for (int k = 0; k < f->series[i].n; k++) {
      const double x = f->series[i].points[k].x;
      if (x != floor(x)) return false;
      least = fmin(least, x);
      most = fmax(most, x);
    }
  return most - least <= 12.0;
}

/* Rows of spans from the top down; the figure is as tall as they need. */
static void write_rows(FILE *out, const struct figure *f)
{
  fprintf(out, "\nset yrange [%g:-0.6]\nunset grid\nset ytics (", f->n_rows - 0.4);
  for (int i = 0; i < f->n_rows; i++) {
    if (i) fputs(", ", out);
    tic(out, f->rows[i]);
    fprintf(out, " %d", i);
  }
  fputs(")\nset offsets 0, 0, 0, 0\nset autoscale xfix", out);
}

/* From nothing, so that colours are in proportion. */
static void write_scale(FILE *out, const struct figure *f)
{
  for (int i = 0; i < f->n_series; i++) {
    if (f->series[i].style != FIGURE_HEAT) continue;
    fputs("\nset palette defined (0 '#f7f7f7', 1 '#fddbc7', 2 '#f4a582', 3 '#d6604d', 4 '#67001f')\nset cbrange [0:*]\nset cblabel ", out);
    quoted(out, f->series[i].name);
  }
}

static void write_script(FILE *out, const struct figure *f, const char *plots)
{
  const int height = f->n_rows ? 150 + 26 * f->n_rows : 440;
  for (int i = 0; i < f->n_series; i++) {
    fprintf(out, "$d%d << EOD\n", i);
    for (int k = 0; k < f->series[i].n; k++) write_point(out, f, i, &f->series[i].points[k]);
    fputs("EOD\n", out);
  }
  fprintf(out, "set encoding utf8\nset grid ytics lc rgb '#cccccc'\nset border 3 lc rgb '#555555'\nset tics nomirror\n"
        "set key below left Left reverse samplen 2%s\nset xlabel ", f->n_rows && f->n_series > 3 ? " maxcols 2" : "");
  quoted(out, f->x_label);
  fputs(f->n_names > 0 || f->n_rows > 0 ? ".\"\\n\" offset 0, 0.4\nset ylabel " : " offset 0, 0.4\nset ylabel ", out); /* clear of the key below it */
  quoted(out, f->y_label);
  if (f->log_y) fputs("\nset logscale y\nset format y '10^{%T}'", out);
  if (f->has_least) fprintf(out, "\nset yrange [%.9g:*]", f->least);
  if (f->n_names > 0) {
    size_t longest = 0;
    for (int i = 0; i < f->n_names; i++) longest = strlen(f->names[i]) > longest ? strlen(f->names[i]) : longest;
    const bool many = f->n_names > 6 || (size_t)f->n_names * longest > 80; /* characters side by side */
    fprintf(out, "\nset xrange [-0.6:%g]\nset xtics %s (", f->n_names - 0.4, many ? "rotate by -40 left font ',10'" : "norotate center");
    for (int i = 0; i < f->n_names; i++) {
      if (i) fputs(", ", out);
      tic(out, f->names[i]);
      fprintf(out, " %d", i);
    }
    fputc(')', out);
  } else if (f->n_rows > 0) write_rows(out, f);
  else if (few_steps(f)) fputs("\nset xtics 1\nset autoscale xfix\nset offsets 0.1, 0.1, graph 0.05, 0", out);
  else fputs("\nset offsets graph 0.02, graph 0.02, graph 0.05, 0", out);
  write_scale(out, f);
  fprintf(out, "\nset terminal svg size 760,%d dynamic enhanced font 'sans-serif,14'\nset output '%s/%s.svg'\n", height, plots, f->id);
  write_plot(out, f);
  fputs("set title ", out); /* on the page the title is text that wraps; the PNG carries its own */
  quoted_lines(out, f->title, 100);
  fprintf(out, "\nset terminal pngcairo size 1140,%d enhanced font 'sans-serif,14' background 'white'\nset output '%s/%s.png'\n", height * 3 / 2, plots, f->id);
  write_plot(out, f);
  fputs("set output\n", out);
}

/* Runs gnuplot on the script; its words on stderr go into `said`.  Returns its exit status. */
static int run_gnuplot(const char *script, char *said, size_t bytes)
{
  int ends[2], status = -1;
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDWR);
    dup2(ends[1], STDERR_FILENO);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    close(ends[0]);
    unsetenv("DISPLAY"); /* no window of its own choosing */
    execlp("gnuplot", "gnuplot", script, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  size_t used = 0;
  char chunk[512];
  for (ssize_t n; (n = read(ends[0], chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR);)
    for (ssize_t i = 0; i < n && used + 1 < bytes; i++) said[used++] = chunk[i] == '\n' ? ' ' : chunk[i];
  said[used] = '\0';
  close(ends[0]);
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

enum err figure_draw(const struct figure *f, const char *dir, const char **missing)
{
  char plots[1024], script[1200], said[512];
  *missing = NULL;
  snprintf(plots, sizeof plots, "%s/plots", dir);
  if (mkdir(plots, 0777) != 0 && errno != EEXIST) FAIL(ERR_IO, "%s: %s", plots, strerror(errno));
  snprintf(script, sizeof script, "%s/%s.gp", plots, f->id);
  FILE *out = fopen(script, "w");
  if (out == NULL) FAIL(ERR_IO, "%s: %s", script, strerror(errno));
  write_script(out, f, plots);
  const bool bad = ferror(out) != 0;
  if (fclose(out) != 0 || bad) FAIL(ERR_IO, "%s: %s", script, strerror(errno));
  const int status = run_gnuplot(script, said, sizeof said);
  unlink(script);
  if (status == 127) *missing = "gnuplot is not installed (Debian: apt-get install gnuplot-nox)";
  else if (status != 0) FAIL(ERR_IO, "gnuplot, figure %s: status %d: %s", f->id, status, said);
  return ERR_OK;
}
