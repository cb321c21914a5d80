/* See pieces.h. */
#include "graph/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "graph/plan.h"

#define BYTES_MAX ((uint64_t)1 << 60)

/* ---- from a plan ---- */

/* Returns the forward node of which a backward node is a clone, or NULL. A clone has the name of its node. */
static const brim_node *original_of(const brim_graph *g, const brim_node *n)
{
  if (g->recomputed_count == 0 || n->index < g->forward_count) return NULL;
  for (size_t i = 0; i < g->forward_count; i++)
    if (g->node[i]->name == n->name && g->node[i]->descriptor == n->descriptor &&
        strcmp(g->node[i]->out[0]->name, n->out[0]->name) == 0)
      return g->node[i];
  return NULL;
}

static void add_tensor(const brim_program *p, const brim_tensor *t, const brim_node *n, uint32_t out, brim_piece *piece)
{
  const int32_t buffer = p->tensor_buffer[t->id];
  if (buffer < 0 || piece[buffer].tensor[0]) return; /* persistent, or already assigned to an earlier tensor */
  brim_piece *to = &piece[buffer];
  const brim_node *original = n ? original_of(p->graph, n) : NULL;
  to->tensor = t->name;
  if (n) to->op = n->op, to->node = n->name;
  to->kind = t->role == BRIM_ROLE_OPTIMIZER       ? BRIM_PIECE_OPTIMIZER
             : !n || t->role == BRIM_ROLE_DATA    ? BRIM_PIECE_DATA
             : original                           ? BRIM_PIECE_AGAIN
             : n->index < p->graph->forward_count ? BRIM_PIECE_FORWARD
                                                  : BRIM_PIECE_BACKWARD;
  const int32_t from = original && out < original->out_count ? p->tensor_buffer[original->out[out]->id] : -1;
  if (from < 0) return;
  to->dropped = p->buffer[from].last;
  to->dropped_middle = p->buffer[from].offset + p->buffer[from].bytes / 2;
}

static void collect_buffers(const brim_program *p, brim_piece *piece)
{
  const brim_graph *g = p->graph;
  for (size_t i = 0; i < p->buffer_count; i++) {
    const brim_buffer *b = &p->buffer[i];
    piece[i] = (brim_piece){b->offset, b->bytes, b->first, b->last, BRIM_PIECE_SCRATCH, "", "", "", -1, 0};
  }
  if (g->input) add_tensor(p, g->input, NULL, 0, piece);
  if (g->label) add_tensor(p, g->label, NULL, 0, piece);
  for (size_t i = 0; i < g->node_count; i++) {
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) add_tensor(p, g->node[i]->out[k], g->node[i], k, piece);
    if (p->workspace_buffer[i] >= 0) {
      piece[p->workspace_buffer[i]].op = g->node[i]->op;
      piece[p->workspace_buffer[i]].node = g->node[i]->name;
    }
  }
}

static uint64_t *collect_alive(brim_arena *arena, const brim_program *p)
{
  const size_t nodes = p->graph->node_count;
  int64_t *change = brim_xcalloc(nodes + 2, sizeof *change), live = 0;
  uint64_t *out = BRIM_ARENA_NEW(arena, uint64_t, nodes);
  for (size_t b = 0; b < p->buffer_count; b++) {
    change[p->buffer[b].first] += (int64_t)p->buffer[b].bytes;
    change[p->buffer[b].last + 1] -= (int64_t)p->buffer[b].bytes;
  }
  for (size_t i = 0; i < nodes; i++) {
    live += change[i];
    out[i] = (uint64_t)live;
  }
  free(change);
  return out;
}

static void collect_parts(const brim_plan *plan, brim_region out[BRIM_PIECE_PERSISTENT])
{
  const uint64_t at[] = {plan->frozen_offset, plan->gradient_offset, plan->optimizer_offset, plan->metrics_offset,
                         plan->persistent_bytes};
  for (int i = 0; i < BRIM_PIECE_PERSISTENT; i++) out[i] = (brim_region){at[i], at[i + 1] - at[i]};
}

static double weight(const brim_piece *x)
{
  return (double)x->bytes * (double)(x->last - x->first + 1);
}

static int most_first(const void *a, const void *b)
{
  const brim_piece *x = a, *y = b;
  if (weight(x) != weight(y)) return weight(x) > weight(y) ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

void brim_pieces_collect(brim_arena *arena, const brim_plan *plan, const brim_program *program, brim_pieces *out)
{
  const brim_program *p = program;
  const bool federated = plan->lane_count > 0;
  const brim_plan *drawn = federated ? plan->lane[0] : plan;
  const brim_graph *g = p->graph;
  brim_text recompute = {0};
  *out = (brim_pieces){.persistent_bytes = drawn->persistent_bytes,
                       .peak_bytes = federated ? plan->peak_bytes : drawn->persistent_bytes + p->transient_bytes,
                       .nodes = (int32_t)g->node_count,
                       .forward = (int32_t)g->forward_count,
                       .live_node = p->live_node,
                       .live_op = g->node_count > 0 ? g->node[p->live_node]->op : "",
                       .live_name = g->node_count > 0 ? g->node[p->live_node]->name : "",
                       .alive = collect_alive(arena, p),
                       .count = p->buffer_count,
                       .buffers = p->buffer_count,
                       .piece = BRIM_ARENA_NEW(arena, brim_piece, p->buffer_count + 1)};
  collect_parts(drawn, out->part);
  collect_buffers(p, out->piece);
  qsort(out->piece, out->count, sizeof *out->piece, most_first);
  brim_recompute_print(p, drawn->request.recompute, &recompute);
  out->recompute = brim_arena_string(arena, brim_text_str(&recompute));
  brim_text_release(&recompute);
  if (!federated) return;
  out->lanes = plan->request.lanes;
  out->server_bytes = plan->persistent_bytes;
  out->lane_bytes = plan->lane_bytes;
  collect_parts(plan, out->server);
}

/* ---- as JSON ---- */

static json_t *integer(uint64_t value)
{
  return json_integer((json_int_t)value);
}

static json_t *regions(const brim_region part[BRIM_PIECE_PERSISTENT])
{
  json_t *out = json_array();
  for (int i = 0; i < BRIM_PIECE_PERSISTENT; i++)
    json_array_append_new(out, json_pack("[I, I]", (json_int_t)part[i].offset, (json_int_t)part[i].bytes));
  return out;
}

/* Omits a name that is not UTF-8. */
static json_t *string(const char *text)
{
  json_t *out = json_string(text);
  return out ? out : json_string("");
}

json_t *brim_pieces_json(const brim_pieces *pieces)
{
  if (pieces->nodes > BRIM_PIECES_NODES_MAX) return NULL;
  json_t *out = json_object(), *alive = json_array(), *rows = json_array();
  for (int32_t i = 0; i < pieces->nodes; i++) json_array_append_new(alive, integer(pieces->alive[i]));
  for (size_t i = 0; i < pieces->count && i < BRIM_PIECES_MAX; i++) {
    const brim_piece *p = &pieces->piece[i];
    json_array_append_new(rows,
                          json_pack("[I, I, i, i, i, i, I, o, o, o]", (json_int_t)p->offset, (json_int_t)p->bytes,
                                    (int)p->first, (int)p->last, (int)p->kind, (int)p->dropped,
                                    (json_int_t)p->dropped_middle, string(p->tensor), string(p->op), string(p->node)));
  }
  json_object_set_new(out, "persistent_bytes", integer(pieces->persistent_bytes));
  json_object_set_new(out, "peak_bytes", integer(pieces->peak_bytes));
  json_object_set_new(out, "parts", regions(pieces->part));
  json_object_set_new(out, "operations", json_integer(pieces->nodes));
  json_object_set_new(out, "forward", json_integer(pieces->forward));
  json_object_set_new(out, "live_operation", json_integer(pieces->live_node));
  json_object_set_new(out, "live_op", string(pieces->live_op));
  json_object_set_new(out, "live_name", string(pieces->live_name));
  json_object_set_new(out, "recompute", string(pieces->recompute));
  json_object_set_new(out, "buffers", json_integer((json_int_t)pieces->buffers));
  if (pieces->lanes > 0) {
    json_object_set_new(out, "lanes", json_integer(pieces->lanes));
    json_object_set_new(out, "server_bytes", integer(pieces->server_bytes));
    json_object_set_new(out, "lane_bytes", integer(pieces->lane_bytes));
    json_object_set_new(out, "server", regions(pieces->server));
  }
  json_object_set_new(out, "alive", alive);
  json_object_set_new(out, "pieces", rows);
  return out;
}

/* ---- back from JSON: any file may be given ---- */

static bool read_number(const json_t *value, uint64_t most, uint64_t *out)
{
  const json_int_t number = json_integer_value(value);
  *out = (uint64_t)number;
  return json_is_integer(value) && number >= 0 && (uint64_t)number <= most;
}

static bool read_int(const json_t *value, int32_t least, int32_t most, int32_t *out)
{
  const json_int_t number = json_integer_value(value);
  *out = (int32_t)number;
  return json_is_integer(value) && number >= least && number <= most;
}

static const char *read_text(const json_t *value)
{
  const char *text = json_string_value(value);
  return text ? text : "";
}

static bool read_regions(const json_t *array, brim_region out[BRIM_PIECE_PERSISTENT])
{
  if (json_array_size(array) != BRIM_PIECE_PERSISTENT) return false;
  for (size_t i = 0; i < BRIM_PIECE_PERSISTENT; i++) {
    const json_t *one = json_array_get(array, i);
    if (!read_number(json_array_get(one, 0), BYTES_MAX, &out[i].offset) ||
        !read_number(json_array_get(one, 1), BYTES_MAX, &out[i].bytes))
      return false;
  }
  return true;
}

static bool read_piece(const json_t *row, int32_t nodes, brim_piece *out)
{
  int32_t kind;
  const bool is_sound = read_number(json_array_get(row, 0), BYTES_MAX, &out->offset) &&
                        read_number(json_array_get(row, 1), BYTES_MAX, &out->bytes) &&
                        read_int(json_array_get(row, 2), 0, nodes, &out->first) &&
                        read_int(json_array_get(row, 3), out->first, nodes, &out->last) &&
                        read_int(json_array_get(row, 4), 0, BRIM_PIECE_KINDS - 1, &kind) &&
                        read_int(json_array_get(row, 5), -1, nodes, &out->dropped) &&
                        read_number(json_array_get(row, 6), BYTES_MAX, &out->dropped_middle);
  if (!is_sound) return false;
  out->kind = (enum brim_piece_kind)kind;
  out->tensor = read_text(json_array_get(row, 7));
  out->op = read_text(json_array_get(row, 8));
  out->node = read_text(json_array_get(row, 9));
  return true;
}

static bool read_rows(brim_arena *arena, const json_t *root, brim_pieces *out)
{
  const json_t *alive = json_object_get(root, "alive"), *pieces = json_object_get(root, "pieces");
  out->count = json_array_size(pieces);
  if (json_array_size(alive) != (size_t)out->nodes || out->count > BRIM_PIECES_MAX) return false;
  out->alive = BRIM_ARENA_NEW(arena, uint64_t, (size_t)out->nodes);
  out->piece = BRIM_ARENA_NEW(arena, brim_piece, out->count + 1);
  for (size_t i = 0; i < (size_t)out->nodes; i++)
    if (!read_number(json_array_get(alive, i), BYTES_MAX, &out->alive[i])) return false;
  for (size_t i = 0; i < out->count; i++)
    if (!read_piece(json_array_get(pieces, i), out->nodes, &out->piece[i])) return false;
  return true;
}

bool brim_pieces_read(brim_arena *arena, const json_t *root, brim_pieces *out)
{
  uint64_t buffers;
  *out = (brim_pieces){.live_op = read_text(json_object_get(root, "live_op")),
                       .live_name = read_text(json_object_get(root, "live_name")),
                       .recompute = read_text(json_object_get(root, "recompute"))};
  const bool is_sound = read_number(json_object_get(root, "persistent_bytes"), BYTES_MAX, &out->persistent_bytes) &&
                        read_number(json_object_get(root, "peak_bytes"), BYTES_MAX, &out->peak_bytes) &&
                        out->peak_bytes > 0 && read_regions(json_object_get(root, "parts"), out->part) &&
                        read_int(json_object_get(root, "operations"), 1, BRIM_PIECES_NODES_MAX, &out->nodes) &&
                        read_int(json_object_get(root, "forward"), 0, out->nodes, &out->forward) &&
                        read_int(json_object_get(root, "live_operation"), 0, out->nodes - 1, &out->live_node) &&
                        read_number(json_object_get(root, "buffers"), BYTES_MAX, &buffers);
  if (!is_sound || !read_rows(arena, root, out)) return false;
  out->buffers = buffers > out->count ? (size_t)buffers : out->count;
  if (!json_object_get(root, "lanes")) return true;
  return read_int(json_object_get(root, "lanes"), 1, 1024, &out->lanes) &&
         read_number(json_object_get(root, "server_bytes"), BYTES_MAX, &out->server_bytes) &&
         read_number(json_object_get(root, "lane_bytes"), BYTES_MAX, &out->lane_bytes) &&
         read_regions(json_object_get(root, "server"), out->server);
}
