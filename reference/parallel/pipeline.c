/* pipeline.c - a list of actions laid out as waits, work and records, and queued. */
#include "parallel/pipeline_state.h"

#include "base/fault.h"

#include <stdlib.h>

static const struct schedule_action *list_of(const struct pipeline *p) { return p->schedule->list[p->stage]; }
static int length_of(const struct pipeline *p) { return p->schedule->n[p->stage]; }
static enum schedule_stream stream_of(const struct pipeline *p, int action)
{
  return schedule_stream_of(list_of(p)[action].pass);
}

/* --- laid out ------------------------------------------------------------------- */

enum { NOTHING = -2, START = -1 };

/* Up to where each stream is done, as number in the queued order. */
struct known {
  int upto[SCHEDULE_STREAMS];
};

/* What making a pipeline needs of the list, and is gone afterwards. */
struct layout {
  struct schedule_waits *waits; /* [n]                                              */
  int *order;                   /* [n] numbers in the list, as they will be queued  */
  int *place;                   /* [n] the reverse                                  */
  struct known *after;          /* [n] what is surely done when this action is      */
  struct known now[SCHEDULE_STREAMS]; /* for the next action of each stream         */
  int last[SCHEDULE_STREAMS];         /* action of each stream; -1: none             */
};

/* As when each rank posts what it has before it asks for more: both ends of a crossing send
 * first.  Actions between the two wait for neither. */
static void send_before_receiving(const struct pipeline *p, const struct layout *l)
{
  const int n = length_of(p);
  for (int i = 0; i < n; i++) {
    int j = i + 1;
    if (list_of(p)[l->order[i]].pass != PASS_RECV_INPUT) continue;
    while (j < n && stream_of(p, l->order[j]) != SCHEDULE_OUTPUTS && l->waits[l->order[j]].on[0] != l->order[i]) j++;
    if (j == n || list_of(p)[l->order[j]].pass != PASS_SEND_OUTPUT) continue;
    const int receive = l->order[i];
    for (int k = i; k < j; k++) l->order[k] = l->order[k + 1];
    l->order[j] = receive;
    i = j;
  }
}

static enum err add(struct pipeline *p, enum pipeline_step_kind kind, enum schedule_stream stream, int event, int action)
{
  if (kind == PIPELINE_WAIT && p->events[event] == NULL)
    TRY(dev_event_create(dev_of(p->stream[SCHEDULE_COMPUTE]), &p->events[event]));
  p->steps[p->n_steps++] = (struct pipeline_step){kind, stream, event, action};
  return ERR_OK;
}

/* What `stream` gives next comes after `event`, unless what it waited for before has seen to that. */
static enum err lay_wait(struct pipeline *p, struct layout *l, enum schedule_stream stream, int event, int action)
{
  const bool start = event == length_of(p);
  const struct known at_start = {{START, NOTHING, NOTHING}};
  const struct known *then = start ? &at_start : &l->after[event];
  int *upto = l->now[stream].upto;
  if (upto[start ? SCHEDULE_COMPUTE : stream_of(p, event)] >= (start ? START : l->place[event])) return ERR_OK;
  for (int i = 0; i < SCHEDULE_STREAMS; i++)
    if (upto[i] < then->upto[i]) upto[i] = then->upto[i];
  return add(p, PIPELINE_WAIT, stream, event, action);
}

/* Without overlap the next pass, whichever it is, comes after the transfer.  Lists laid out so cannot lock either:
 * all that a transfer waits for stands before it, and both ends have transfers in one order. */
static enum err lay_action(struct pipeline *p, struct layout *l, int action)
{
  const enum schedule_stream stream = stream_of(p, action);
  const int *on = l->waits[action].on;
  const bool second = on[1] >= 0 && (on[0] < 0 || l->place[on[1]] > l->place[on[0]]); /* both on `outputs`: the later sees to both */
  if (on[second] >= 0) TRY(lay_wait(p, l, stream, on[second], action));
  TRY(lay_wait(p, l, stream, length_of(p), action)); /* a place that nobody had before in this run */
  TRY(add(p, PIPELINE_ACTION, stream, -1, action));
  TRY(add(p, PIPELINE_RECORD, stream, action, action));
  l->now[stream].upto[stream] = l->place[action];
  l->after[action] = l->now[stream];
  l->last[stream] = action;
  if (stream != SCHEDULE_COMPUTE && !p->overlap) TRY(lay_wait(p, l, SCHEDULE_COMPUTE, action, action));
  return ERR_OK;
}

/* Records that nobody waits for are dropped. */
static void drop_records(struct pipeline *p)
{
  int n = 0;
  for (int i = 0; i < p->n_steps; i++)
    if (p->steps[i].kind != PIPELINE_RECORD || p->events[p->steps[i].event]) p->steps[n++] = p->steps[i];
  p->n_steps = n;
}

static enum err lay(struct pipeline *p, struct layout *l)
{
  const int n = length_of(p);
  for (int i = 0; i < n; i++) l->place[l->order[i]] = i;
  for (int i = 0; i < SCHEDULE_STREAMS; i++) {
    l->now[i] = (struct known){{NOTHING, NOTHING, NOTHING}};
    l->last[i] = -1;
  }
  l->now[SCHEDULE_COMPUTE].upto[SCHEDULE_COMPUTE] = START;
  TRY(add(p, PIPELINE_RECORD, SCHEDULE_COMPUTE, n, -1));
  for (int i = 0; i < n; i++) TRY(lay_action(p, l, l->order[i]));
  for (int i = SCHEDULE_OUTPUTS; i < SCHEDULE_STREAMS; i++)
    if (l->last[i] >= 0) TRY(lay_wait(p, l, SCHEDULE_COMPUTE, l->last[i], -1));
  drop_records(p);
  return ERR_OK;
}

static enum err lay_out(struct pipeline *p)
{
  const int n = length_of(p);
  const size_t room = (size_t)n;
  enum err err = ERR_OK;
  struct layout l = {.waits = malloc(room * sizeof *l.waits),
                     .order = malloc(room * sizeof *l.order),
                     .place = malloc(room * sizeof *l.place),
                     .after = malloc(room * sizeof *l.after)};
  p->events = calloc(room + 1, sizeof(struct dev_event *));
  p->steps = malloc((5 * room + SCHEDULE_STREAMS) * sizeof *p->steps); /* two waits, action, record, its wait; those of the run */
  if (!l.waits || !l.order || !l.place || !l.after || !p->events || !p->steps)
    FAIL_TO(done, ERR_MEMORY, "pipeline: %d actions", n);
  TRY_TO(done, schedule_waits(p->schedule, p->stage, l.waits));
  for (int i = 0; i < n; i++) l.order[i] = i;
  if (fault_is(FAULT_PP_INTERLEAVED_P2P_DEADLOCK)) send_before_receiving(p, &l);
  TRY_TO(done, lay(p, &l));

done:
  free(l.after);
  free(l.place);
  free(l.order);
  free(l.waits);
  return err;
}

/* --- made ------------------------------------------------------------------------- */

static enum err check_comm(const struct schedule *s, int stage, const struct comm *c, const struct dev_stream *compute,
                           const char *name)
{
  if (c == NULL) FAIL(ERR_ARG, "pipeline: %d ranks without comm '%s'", s->p, name);
  if (comm_group_size(c) != s->p || comm_group_rank(c) != stage)
    FAIL(ERR_ARG, "pipeline: stage %d of %d is rank %d of %d in comm '%s'", stage, s->p, comm_group_rank(c),
         comm_group_size(c), name);
  if (comm_stream(c) == compute) FAIL(ERR_ARG, "pipeline: comm '%s' is on the compute stream", name);
  return ERR_OK;
}

static enum err check(const struct schedule *s, int stage, const struct dev_stream *compute, const struct comm *outputs,
                      const struct comm *gradients)
{
  if (stage < 0 || stage >= s->p) FAIL(ERR_ARG, "pipeline: stage %d of %d", stage, s->p);
  if (s->p == 1) return ERR_OK;
  TRY(check_comm(s, stage, outputs, compute, "outputs"));
  if (s->kind == SCHEDULE_FORWARD) return ERR_OK;
  TRY(check_comm(s, stage, gradients, compute, "gradients"));
  if (comm_stream(outputs) == comm_stream(gradients)) FAIL(ERR_ARG, "pipeline: outputs and gradients are on one stream");
  return ERR_OK;
}

enum err pipeline_create(const struct schedule *s, int stage, bool overlap, struct dev_stream *compute, struct comm *outputs,
                         struct comm *gradients, struct pipeline **out)
{
  *out = NULL;
  TRY(check(s, stage, compute, outputs, gradients));
  struct pipeline *p = calloc(1, sizeof *p);
  if (p == NULL) FAIL(ERR_MEMORY, "pipeline: %zu bytes", sizeof *p);
  *p = (struct pipeline){.schedule = s, .stage = stage, .overlap = overlap};
  p->comm[SCHEDULE_OUTPUTS] = outputs;
  p->comm[SCHEDULE_GRADIENTS] = gradients;
  p->stream[SCHEDULE_COMPUTE] = compute;
  for (int i = SCHEDULE_OUTPUTS; i < SCHEDULE_STREAMS; i++)
    if (p->comm[i]) p->stream[i] = comm_stream(p->comm[i]);
  const enum err err = lay_out(p);
  if (err) {
    pipeline_destroy(p);
    return err_trace(err, __FILE__, __LINE__);
  }
  /* late enough that the buffer is surely overwritten before it is read */
  if (fault_is(FAULT_PP_SEND_BUFFER_FREED_EARLY) && outputs) comm_delay(outputs, 30 * fault_strength);
  *out = p;
  return ERR_OK;
}

void pipeline_destroy(struct pipeline *p)
{
  if (p == NULL) return;
  for (int i = 0; p->events && i <= length_of(p); i++) dev_event_destroy(p->events[i]);
  free(p->events);
  free(p->steps);
  free(p);
}

/* --- queued ------------------------------------------------------------------------- */

static enum err act(struct pipeline *p, const struct pipeline_work *w, const struct schedule_action *a)
{
  const enum schedule_stream stream = schedule_stream_of(a->pass);
  if (stream == SCHEDULE_COMPUTE) return w->pass(w->arg, a);
  const bool output = a->pass == PASS_SEND_OUTPUT || a->pass == PASS_RECV_GRADIENT;
  const bool sends = a->pass == PASS_SEND_OUTPUT || a->pass == PASS_SEND_GRADIENT;
  const struct tensor t = w->boundary(w->arg, a, output);
  if (sends) TRY(comm_send(p->comm[stream], &t, a->peer));
  else TRY(comm_recv(p->comm[stream], &t, a->peer));
  if (fault_is(FAULT_PP_SEND_BUFFER_FREED_EARLY) && a->pass == PASS_SEND_OUTPUT)
    TRY(dev_begin(p->stream[SCHEDULE_COMPUTE], t.at, (size_t)(t.rows * t.stride) * dtype_bytes(t.type)));
  return ERR_OK;
}

/* Step i is the last of a pass: itself or the event of it. */
static bool ends_pass(const struct pipeline *p, int i)
{
  const struct pipeline_step *step = &p->steps[i], *next = step + 1;
  if (step->kind == PIPELINE_WAIT || step->stream != SCHEDULE_COMPUTE || step->action < 0) return false;
  return i + 1 == p->n_steps || next->kind != PIPELINE_RECORD || next->action != step->action;
}

static enum err queue(struct pipeline *p, const struct pipeline_work *w, struct dev *d)
{
  for (int i = 0; i < p->n_steps; i++) {
    const struct pipeline_step *step = &p->steps[i];
    struct dev_stream *stream = p->stream[step->stream];
    if (step->kind == PIPELINE_WAIT) {
      TRY(dev_wait(stream, p->events[step->event]));
    } else if (step->kind == PIPELINE_RECORD) {
      TRY(dev_record(p->events[step->event], stream));
    } else {
      dev_set_action(d, step->action);
      TRY(act(p, w, &list_of(p)[step->action]));
    }
    if (w->after && ends_pass(p, i)) TRY(w->after(w->arg, &list_of(p)[step->action]));
  }
  return ERR_OK;
}

enum err pipeline_run(struct pipeline *p, const struct pipeline_work *w)
{
  struct dev *d = dev_of(p->stream[SCHEDULE_COMPUTE]);
  const enum err err = queue(p, w, d);
  dev_set_action(d, -1);
  return err ? err_trace(err, __FILE__, __LINE__) : ERR_OK;
}
