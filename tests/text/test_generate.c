/* Tests generation with caches of keys and values: the programs for chunks and for single tokens compute the same
 * logits as a program for the whole sample, and a generator continues texts as the model without caches does. The tests
 * use whole runs on the reference backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/generate.h"
#include "train/trainer.h"
#include "trained.h"

#define LENGTH 24
#define CHUNK 5
#define TEXTS 2

/* The model trains some steps, so that its logits depend on earlier tokens. */
static const char *const common[] = {"dataset.context=24",
                                     "training.batch_size=4",
                                     "training.steps=6",
                                     "optimizer.lr=0.05",
                                     ("claims.dir=" BRIM_BUILD_DIR "/claims-generate"),
                                     NULL};

static int32_t token_of(int text, int64_t place)
{
  return (int32_t)((37 * place * (text + 1) + 11 * place * place + 5 + text) % VOCABULARY);
}

/* Computes the logits of whole samples. */
static void find_logits(const opened *o, double logits[TEXTS][LENGTH * VOCABULARY])
{
  brim_trainer *t = NULL;
  int32_t tokens[LENGTH], label[LENGTH] = {0};
  must(brim_trainer_open_evaluation(o->drive, 1, 1, true, o->checkpoint, &t));
  const brim_program *p = brim_plan_program(brim_trainer_plan(t), BRIM_PROGRAM_EVALUATE, 1);
  for (int text = 0; text < TEXTS; text++) {
    for (int i = 0; i < LENGTH; i++) tokens[i] = token_of(text, i);
    must(brim_exec_load(brim_trainer_exec(t), p, tokens, label));
    must(brim_exec_run(brim_trainer_exec(t), p, &(brim_step){.loss_scale = 1}, NULL));
    must(brim_exec_read(brim_trainer_exec(t), p, p->graph->kept, logits[text]));
  }
  brim_trainer_close(t);
}

/* Runs a program for tokens [from, to) of each text. If the program has room for more tokens, the last one is
 * repeated. */
static void step(brim_trainer *t, const brim_program *p, const int64_t *from, const int64_t *to)
{
  int32_t tokens[TEXTS * CHUNK], places[TEXTS * CHUNK];
  const int64_t room = p->graph->generation.tokens;
  for (int text = 0; text < TEXTS; text++)
    for (int64_t i = 0; i < room; i++) {
      const int64_t place = from[text] + i < to[text] ? from[text] + i : to[text] - 1;
      tokens[text * room + i] = token_of(text, place);
      places[text * room + i] = (int32_t)place;
    }
  must(brim_exec_load_tokens(brim_trainer_exec(t), p, tokens, places));
  must(brim_exec_run(brim_trainer_exec(t), p, &(brim_step){.loss_scale = 1}, NULL));
}

/* Runs the prompts in chunks, where the prompts' lengths differ, and then token by token. */
static void check_programs(const opened *o, double logits[TEXTS][LENGTH * VOCABULARY])
{
  const int64_t prompt[TEXTS] = {11, 7};
  const brim_evaluation_wish wish = {.batch = TEXTS, .capacity = LENGTH, .chunk = CHUNK};
  brim_trainer *t = NULL;
  double answer[TEXTS * VOCABULARY];
  must(brim_planner_check_generation(&o->drive->planner, &o->drive->choice, LENGTH));
  must(brim_trainer_open_generation(o->drive, &wish, o->checkpoint, &t));
  const brim_plan *plan = brim_trainer_plan(t);
  const brim_program *chunk = brim_plan_generation(plan, CHUNK), *token = brim_plan_generation(plan, 1);
  assert_non_null(chunk);
  assert_non_null(token);
  assert_true(plan->class_bytes[BRIM_ROLE_CACHE] > 0);
  assert_int_equal(brim_trainer_device_bytes(t), plan->peak_bytes);
  int64_t from[TEXTS] = {0}, to[TEXTS];
  while (from[0] < prompt[0] || from[1] < prompt[1]) {
    for (int text = 0; text < TEXTS; text++) {
      if (from[text] == prompt[text]) from[text]--;
      to[text] = from[text] + CHUNK < prompt[text] ? from[text] + CHUNK : prompt[text];
    }
    step(t, chunk, from, to);
    memcpy(from, to, sizeof from);
  }
  for (; from[0] < LENGTH; from[0]++, from[1]++) {
    for (int text = 0; text < TEXTS; text++) to[text] = from[text] + 1;
    step(t, token, from, to);
    must(brim_exec_read(brim_trainer_exec(t), token, token->graph->kept, answer));
    for (int text = 0; text < TEXTS; text++)
      for (int k = 0; k < VOCABULARY; k++)
        assert_true(fabs(answer[text * VOCABULARY + k] - logits[text][from[text] * VOCABULARY + k]) < 1e-10);
  }
  brim_trainer_close(t);
}

static void check_model(const char *dir, const char *const *words)
{
  static double logits[TEXTS][LENGTH * VOCABULARY];
  train(dir, common, words);
  opened o = open_run(dir);
  find_logits(&o, logits);
  check_programs(&o, logits);
  close_run(&o);
}

#define DECODER "model=decoder", "model.layers=3", "model.heads=4", "model.width=16", "model.mlp_width=24"

static void cached_programs_compute_the_logits_of_the_whole_sample(void **state)
{
  static const struct {
    const char *name;
    const char *words[WORDS_MAX];
  } models[] = {
      {"plain", {DECODER}},
      {"grouped", {DECODER, "model.kv_heads=2", "model.qk_norm=head", "model.qkv_bias=true"}},
      {"llama3",
       {DECODER, "model.kv_heads=1", "model.rope_type=llama3", "model.rope_factor=4", "model.rope_original=8",
        "model.tied=false"}},
      {"yarn", {DECODER, "model.rope_type=yarn", "model.rope_factor=4", "model.rope_original=8", "model.head_size=6"}},
      {"without", {DECODER, "model.rope_layers=[1,0,1]"}},
      {"windows", {DECODER, "model.window=4", "model.window_layers=[1,0,1]", "model.attention_softcap=2"}},
      {"ring", {DECODER, "model.window=3", "model.kv_heads=2"}},
      {"gemma",
       {DECODER, "model.norms=around", "model.norm_offset=1", "model.activation=gelu_tanh", "model.embedding_scale=4",
        "model.window=5", "model.window_pattern=2", "model.sliding_rope_base=100", "model.query_size=9",
        "model.attention_softcap=3", "model.logit_softcap=4"}},
      {"phi", {DECODER, "model.fused=true", "model.rope_share=0.5", "model.qk_norm=width", "model.norms=after"}},
      {"dynamic",
       {DECODER, "model.rope_type=dynamic", "model.rope_factor=2", "model.rope_original=8", "model.context=8"}},
      {"gpt2", {"model=gpt2", "model.layers=2", "model.heads=2", "model.width=16", "model.context=24"}},
      {"lora",
       {"model=lora", "backbone=gpt2", "backbone.layers=2", "backbone.heads=2", "backbone.width=16",
        "backbone.context=24", "model.lora_targets=[c_attn,c_fc]"}}};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    print_message("%s\n", models[i].name);
    check_model(models[i].name, models[i].words);
  }
}

/* ---- whole texts ---- */

#define NEW 40 /* tokens: more than a sample has, so that the oldest are dropped */

typedef struct taken {
  int32_t token[TEXTS][NEW];
  int64_t count[TEXTS];
  int ended[TEXTS];
} taken;

static brim_status take(void *context, int64_t index, int32_t token)
{
  taken *t = context;
  t->token[index][t->count[index]++] = token;
  return BRIM_OK;
}

static brim_status end(void *context, int64_t index)
{
  ((taken *)context)->ended[index]++;
  return BRIM_OK;
}

/* Continues a text by running a whole sample for each token. */
static void continue_plainly(const opened *o, const brim_generate_text *text, const brim_generate_options *how,
                             int32_t *out)
{
  brim_trainer *t = NULL;
  static double logits[LENGTH * VOCABULARY];
  brim_sampling_choice room[VOCABULARY];
  int32_t tokens[LENGTH] = {0}, label[LENGTH] = {0};
  int64_t used = text->count;
  memcpy(tokens, text->prompt, (size_t)used * sizeof *tokens);
  must(brim_trainer_open_evaluation(o->drive, 1, 1, true, o->checkpoint, &t));
  const brim_program *p = brim_plan_program(brim_trainer_plan(t), BRIM_PROGRAM_EVALUATE, 1);
  for (int64_t i = 0; i < how->tokens; i++) {
    must(brim_exec_load(brim_trainer_exec(t), p, tokens, label));
    must(brim_exec_run(brim_trainer_exec(t), p, &(brim_step){.loss_scale = 1}, NULL));
    must(brim_exec_read(brim_trainer_exec(t), p, p->graph->kept, logits));
    out[i] = brim_sample(&how->sampling, logits + (used - 1) * VOCABULARY, VOCABULARY, 0, room);
    if (used == LENGTH) memmove(tokens, tokens + 1, (size_t)--used * sizeof *tokens);
    tokens[used++] = out[i];
  }
  brim_trainer_close(t);
}

static void texts_side_by_side_are_those_without_caches(void **state)
{
  static const char *const words[] = {DECODER, "model.kv_heads=2", NULL};
  static const int32_t prompt[] = {'t', 'h', 'e', ' ', 's', 't', 'e', 'p', ' ', 'i'};
  const brim_generate_text text[TEXTS] = {{prompt, 10, 0}, {prompt + 2, 1, 1}};
  const brim_generator_options room = {.texts = TEXTS, .prompt = 10, .tokens = NEW};
  taken got = {0};
  const brim_generate_options how = {
      .sampling = {.temperature = 0, .top_p = 1}, .tokens = NEW, .take = take, .end = end, .context = &got};
  brim_generator *g = NULL;
  train("texts", common, words);
  opened o = open_run("texts");
  must(brim_generator_open(o.drive, o.checkpoint, &room, &g));
  assert_string_equal(brim_generator_without_cache(g), "");
  must(brim_generator_run(g, text, TEXTS, &how));
  for (int again = 0; again < 2; again++) { /* the second time, text 1 runs alone */
    for (int i = again; i < TEXTS; i++) {
      int32_t expected[NEW];
      continue_plainly(&o, &text[i], &how, expected);
      assert_int_equal(got.count[again ? 0 : i], NEW);
      assert_int_equal(got.ended[again ? 0 : i], 1);
      assert_memory_equal(got.token[again ? 0 : i], expected, sizeof expected);
    }
    got = (taken){0};
    if (!again) must(brim_generator_run(g, &text[1], 1, &how));
  }
  brim_generator_close(g);
  close_run(&o);
}

static void a_stop_token_ends_one_text(void **state)
{
  static const int32_t prompt[] = {'t', 'h', 'e', ' '};
  const brim_generate_text text[TEXTS] = {{prompt, 4, 0}, {prompt + 1, 2, 1}};
  const brim_generator_options room = {.texts = TEXTS, .prompt = 4, .tokens = 12};
  taken all = {0}, got = {0};
  brim_generate_options how = {
      .sampling = {.temperature = 1, .top_p = 1}, .tokens = 12, .take = take, .end = end, .context = &all};
  brim_generator *g = NULL;
  opened o = open_run("texts");
  must(brim_generator_open(o.drive, o.checkpoint, &room, &g));
  must(brim_generator_run(g, text, TEXTS, &how));
  int64_t at = 0; /* the first place of that token in text 0 */
  while (all.token[0][at] != all.token[0][5]) at++;
  how.stops = (brim_stops){.token = {all.token[0][5]}, .count = 1};
  how.context = &got;
  must(brim_generator_run(g, text, TEXTS, &how));
  assert_int_equal(got.count[0], at);
  assert_int_equal(got.ended[0], 1);
  assert_memory_equal(got.token[0], all.token[0], (size_t)at * sizeof(int32_t));
  assert_memory_equal(got.token[1], all.token[1], (size_t)got.count[1] * sizeof(int32_t));
  brim_generator_close(g);
  close_run(&o);
}

/* ---- models without caches ---- */

enum way { CAUSAL, MUTUAL, POSITIONS, LSTM, MEAN, WAYS };

static brim_status build(const void *self, brim_graph *g)
{
  const enum way way = *(const enum way *)self;
  const int64_t table[] = {LENGTH, 8};
  brim_tensor *x = brim_embedding(g, "embedding", brim_input(g), VOCABULARY, 8);
  if (way == POSITIONS) x = brim_add(g, x, brim_parameter_new(g, "positions", 2, table, (brim_init){0}));
  if (way == LSTM) x = brim_lstm(g, "lstm", x, 8, (brim_lstm_options){0});
  if (way == MEAN) x = brim_add(g, x, brim_mean(g, x, 1, (int32_t[]){1}, 1));
  const brim_attention_options options = {.heads = 2, .causal = way != MUTUAL};
  x = brim_attention(g, x, x, x, options);
  brim_output(g, brim_linear(g, "last", brim_relu(g, x), VOCABULARY));
  return BRIM_OK;
}

static void tokens_may_affect_each_other_only_by_causal_attention(void **state)
{
  static const char *const reasons[WAYS] = {
      [MUTUAL] = "attention", [POSITIONS] = "add", [LSTM] = "lstm", [MEAN] = "mean"};
  static const brim_model_ops ops = {.size = sizeof ops, .build = build};
  for (enum way way = 0; way < WAYS; way++) {
    brim_graph *g = NULL;
    const brim_graph_options options = {.model = &ops,
                                        .model_self = &way,
                                        .loss = {.op = "softmax_cross_entropy"},
                                        .sample = {1, {LENGTH}},
                                        .task = BRIM_TASK_TOKENS,
                                        .classes = VOCABULARY,
                                        .batch = 1,
                                        .real = BRIM_DTYPE_F32,
                                        .generation = {LENGTH, LENGTH, LENGTH, true}};
    const brim_status status = brim_graph_build(&options, &g);
    assert_int_equal(status, way == CAUSAL ? BRIM_OK : BRIM_ENOTSUP);
    if (status == BRIM_OK)
      brim_graph_free(g);
    else
      assert_memory_equal(brim_error_text(), reasons[way], strlen(reasons[way]));
  }
}

/* ---- plans ---- */

static void a_plan_has_the_caches_and_rings_of_windows(void **state)
{
  static const struct {
    const char *name;
    uint64_t rows; /* rows in the caches of the three layers, for one text */
  } runs[] = {{"plain", 3 * 20}, {"ring", 3 * (3 + 4)}, {"windows", 20 + 2 * (4 + 4)}};
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    opened o = open_run(runs[i].name);
    brim_plan *plan = NULL;
    must(brim_generator_make_plan(o.drive, &(brim_generator_options){.texts = 3, .prompt = 5, .tokens = 15}, &plan));
    const uint64_t width = i == 1 ? 8 : 16; /* two or four heads of keys */
    assert_int_equal(plan->class_bytes[BRIM_ROLE_CACHE], 3 * runs[i].rows * 2 * width * sizeof(double));
    assert_null(brim_plan_generation(plan, 5));
    assert_non_null(brim_plan_generation(plan, 4)); /* the prompt's last token runs alone, so a chunk has 4 tokens */
    brim_plan_free(plan);
    close_run(&o);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cached_programs_compute_the_logits_of_the_whole_sample),
      cmocka_unit_test(texts_side_by_side_are_those_without_caches),
      cmocka_unit_test(a_stop_token_ends_one_text),
      cmocka_unit_test(tokens_may_affect_each_other_only_by_causal_attention),
      cmocka_unit_test(a_plan_has_the_caches_and_rings_of_windows),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
