/* Tests loading weights: numbers of other types, indexes of several files, and the mapping of tensors to parameters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/convert.h"
#include "base/text.h"
#include "export/export.h"
#include "scratch.h"
#include "store/weights.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define F32 BRIM_DTYPE_F32

static brim_shape shape_of(int rank, const int64_t *dim)
{
  brim_shape out = {.rank = rank};
  for (int i = 0; i < rank; i++) out.dim[i] = dim[i];
  return out;
}
#define DIMS(...) shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void assert_error(const char *part)
{
  if (!strstr(brim_error_text(), part)) fail_msg("'%s' is not in:\n%s", part, brim_error_text());
}

/* ---- numbers ---- */

static const void *data_of(const brim_safetensors *file, const char *name, size_t *count)
{
  const brim_safetensor *t = brim_safetensors_find(file, name);
  assert_non_null(t);
  *count = (size_t)brim_shape_count(&t->shape);
  return t->data;
}

/* PyTorch made the file: see golden/make_types.py. */
static void conversions_are_those_of_pytorch(void **state)
{
  static const struct {
    const char *name;
    uint32_t dtype;
  } types[] = {{"bf16", BRIM_DTYPE_BF16}, {"fp16", BRIM_DTYPE_F16}};
  float wide[256];
  uint16_t narrow[256];
  size_t count;
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_open(BRIM_TESTS_DIR "/golden/types.safetensors", &file), BRIM_OK);
  assert_string_equal(brim_safetensors_metadata(file, "format"), "pt");
  assert_null(brim_safetensors_metadata(file, "formats"));
  const void *f32 = data_of(file, "fp32", &count);
  for (size_t i = 0; i < LEN(types); i++) {
    char name[32];
    snprintf(name, sizeof name, "%s.in_fp32", types[i].name);
    const void *small = data_of(file, types[i].name, &count);
    brim_convert(F32, wide, types[i].dtype, small, count);
    assert_memory_equal(wide, data_of(file, name, &count), count * sizeof *wide);
    brim_convert(types[i].dtype, narrow, F32, f32, count);
    assert_memory_equal(narrow, small, count * sizeof *narrow);
  }
  brim_convert(F32, wide, BRIM_DTYPE_F64, data_of(file, "fp64", &count), count);
  assert_memory_equal(wide, f32, count * sizeof *wide);
  assert_int_equal(brim_safetensors_find(file, "num_batches_tracked")->dtype, 0);
  assert_string_equal(brim_safetensors_find(file, "mask")->type, "BOOL");
  brim_safetensors_close(file);
}

static void every_number_of_16_bits_comes_back(void **state)
{
  static const uint32_t types[] = {BRIM_DTYPE_BF16, BRIM_DTYPE_F16};
  for (size_t t = 0; t < LEN(types); t++)
    for (uint32_t i = 0; i < 65536; i++) {
      const uint16_t bits = (uint16_t)i;
      uint16_t again;
      float value;
      brim_convert(F32, &value, types[t], &bits, 1);
      brim_convert(types[t], &again, F32, &value, 1);
      if (isnan(value)) {
        brim_convert(F32, &value, types[t], &again, 1);
        assert_true(isnan(value));
      } else {
        assert_int_equal(again, bits);
      }
      assert_int_equal(brim_all_finite(types[t], &bits, 1), isfinite(value));
    }
}

static void values_too_large_for_16_bits_become_infinite(void **state)
{
  static const struct {
    double value;
    uint16_t f16;
  } cases[] = {{65519.99, 0x7BFF}, {65520, 0x7C00}, {-1e300, 0xFC00}, {INFINITY, 0x7C00},
               {0x1p-25, 0},       {0x1.8p-25, 1},  {-0.0, 0x8000}};
  for (size_t i = 0; i < LEN(cases); i++) {
    uint16_t out;
    brim_convert(BRIM_DTYPE_F16, &out, BRIM_DTYPE_F64, &cases[i].value, 1);
    assert_int_equal(out, cases[i].f16);
  }
}

/* ---- indexes ---- */

static void wrong_indexes_are_refused_with_the_reason(void **state)
{
  static const struct {
    const char *text, *reason;
  } cases[] = {
      {"", "line 1, column 0"},
      {"{\"weight_map\": {\"a\": \"x\"}", "line 1"},
      {"[]", "has no object 'weight_map'"},
      {"{\"weight_map\": []}", "has no object 'weight_map'"},
      {"{\"weight_map\": {}}", "'weight_map' is empty"},
      {"{\"weight_map\": {\"a\": 1}}", "the file of tensor 'a' is not a string"},
      {"{\"weight_map\": {\"a\": \"../x\"}}", "'../x'; it must be the name of a file in the same folder"},
      {"{\"weight_map\": {\"a\": \"/x\"}}", "must be the name of a file in"},
      {"{\"weight_map\": {\"a\": \"..\"}}", "must be the name of a file in"},
      {"{\"weight_map\": {\"a\": \"\"}}", "must be the name of a file in"},
      {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "duplicate object key"},
  };
  for (size_t i = 0; i < LEN(cases); i++) {
    brim_arena arena = {0};
    brim_weights_index index;
    assert_int_equal(brim_weights_index_parse(&arena, cases[i].text, strlen(cases[i].text), "i.json", &index),
                     BRIM_ELOAD);
    assert_error(cases[i].reason);
    assert_error("'i.json'");
    brim_arena_release(&arena);
  }
}

/* Two tensors with values 1 and 2. */
static void write_shard(const char *path, const char *a, const char *b)
{
  static const float value[] = {1, 2};
  const brim_safetensor t[] = {{.name = a, .dtype = F32, .shape = {.rank = 0}, .data = &value[0]},
                               {.name = b, .dtype = F32, .shape = {.rank = 0}, .data = &value[1]}};
  assert_int_equal(brim_safetensors_write(path, t, b ? 2 : 1, NULL, NULL), BRIM_OK);
}

static bool holds(const brim_weights_files *files, const char *name)
{
  size_t i = 0;
  while (i < brim_weights_files_count(files) && strcmp(brim_weights_files_at(files, i)->name, name) != 0) i++;
  return i < brim_weights_files_count(files);
}

static void shards_are_read_by_their_index(void **state)
{
  static const char index[] = "{\"metadata\": {\"total_size\": 12}, \"weight_map\": {\"c\": \"2.safetensors\", "
                              "\"a\": \"1.safetensors\", \"b\": \"1.safetensors\"}}";
  brim_weights_files *files;
  scratch_put("shards/model.safetensors.index.json", index);
  assert_int_equal(brim_weights_files_open(scratch("shards"), &files), BRIM_ELOAD);
  assert_error("1.safetensors' is missing: file 1 of 2 that");
  write_shard(scratch("shards/1.safetensors"), "a", "b");
  write_shard(scratch("shards/2.safetensors"), "c", NULL);
  assert_int_equal(brim_weights_files_open(scratch("shards"), &files), BRIM_OK);
  assert_int_equal(brim_weights_files_count(files), 3);
  assert_int_equal(brim_weights_files_file_count(files), 2);
  assert_string_equal(brim_weights_files_at(files, 2)->name, "c");
  assert_true(holds(files, "b"));
  assert_false(holds(files, "d"));
  brim_weights_files_close(files);
  assert_int_equal(brim_weights_files_open(scratch("shards/model.safetensors.index.json"), &files), BRIM_OK);
  brim_weights_files_close(files);
}

static void shards_that_are_not_those_of_the_index_are_refused(void **state)
{
  brim_weights_files *files;
  scratch_put("mixed/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"1.safetensors\", \"c\": \"2.safetensors\"}}");
  write_shard(scratch("mixed/1.safetensors"), "a", "b");
  write_shard(scratch("mixed/2.safetensors"), "c", NULL);
  assert_int_equal(brim_weights_files_open(scratch("mixed"), &files), BRIM_ELOAD);
  assert_error("has a tensor 'b' that");
  write_shard(scratch("mixed/1.safetensors"), "b", NULL);
  assert_int_equal(brim_weights_files_open(scratch("mixed"), &files), BRIM_ELOAD);
  assert_error("1.safetensors' has no tensor 'a'");
  /* Both files have tensor c, but the index lists it only for the second file. */
  write_shard(scratch("mixed/1.safetensors"), "a", "c");
  assert_int_equal(brim_weights_files_open(scratch("mixed"), &files), BRIM_ELOAD);
  assert_error("1.safetensors' has a tensor 'c' that");
}

static void files_without_weights_are_refused_with_advice(void **state)
{
  brim_weights_files *files;
  scratch_put("empty/readme", "");
  scratch_put("pickle/model.pth", "x");
  assert_int_equal(brim_weights_files_open(scratch("empty"), &files), BRIM_ELOAD);
  assert_error("has no weights that brim can read");
  assert_int_equal(brim_weights_files_open(scratch("pickle/model.pth"), &files), BRIM_ELOAD);
  assert_error("was written by torch.save");
  assert_int_equal(brim_weights_files_open(scratch("none"), &files), BRIM_ELOAD);
  assert_error("No such file or directory");
}

/* ---- maps ---- */

static void wrong_maps_are_refused_with_every_mistake(void **state)
{
  static const char text[] = "about: x\n"
                             "recognize: []\n"
                             "rules:\n"
                             "  - {from: 'a.*', to: 'b.**'}\n"
                             "  - {from: 'a', drop: yes}\n"
                             "  - {to: 'a'}\n"
                             "  - {from: 'a', to: 'b', drop: true}\n"
                             "  - {from: 'a***b', drop: true}\n"
                             "  - {from: 'a', drop: true, transpose: true}\n"
                             "  - text\n";
  static const char *const parts[] = {"unknown key 'recognize'",
                                      "m.yaml:2:1",
                                      "did you mean 'recognise'?",
                                      "'b.**' must have the wildcards of 'a.*', in the same order\n  m.yaml:4:",
                                      "'drop' must be true or false\n  m.yaml:5:",
                                      "the rule has no 'from'\n  m.yaml:6:",
                                      "a rule needs exactly one of 'to', 'same_as' and 'drop: true'\n  m.yaml:7:",
                                      "adjacent wildcards in 'a***b'",
                                      "'transpose', 'optional', 'heads' and 'add' require 'to'\n  m.yaml:9:",
                                      "a rule must be a map: {from: PATTERN, to: PATTERN}\n  m.yaml:10:"};
  brim_arena arena = {0};
  brim_weights_map map;
  assert_int_equal(brim_weights_map_parse(&arena, text, strlen(text), "m.yaml", "m", &map), BRIM_ECONFIG);
  for (size_t i = 0; i < LEN(parts); i++) assert_error(parts[i]);
  assert_int_equal(brim_weights_map_parse(&arena, "about: x", 8, "m.yaml", "m", &map), BRIM_ECONFIG);
  assert_error("the map has no 'rules'");
  brim_arena_release(&arena);
}

static void names_map_to_the_model_and_back(void **state)
{
  static const char text[] = "rules:\n"
                             "  - {from: 'h.*.c_*.weight', to: 't.h.*.c_*.weight', transpose: true}\n"
                             "  - {from: '**.count', drop: true}\n"
                             "  - {from: 'h.**', to: 't.h.**'}\n"
                             "  - {from: last, same_as: t.first}\n";
  static const struct {
    const char *file, *model;
    bool transpose;
  } pairs[] = {{"h.11.c_fc.weight", "t.h.11.c_fc.weight", true},
               {"h.11.mlp.c_fc.weight", "t.h.11.mlp.c_fc.weight", false}, /* * does not match dots */
               {"h.0.ln.weight", "t.h.0.ln.weight", false},
               {"h.", "t.h.", false},
               {"other", "other", false}};
  brim_arena arena = {0};
  brim_weights_map map;
  assert_int_equal(brim_weights_map_parse(&arena, text, strlen(text), "m.yaml", "m", &map), BRIM_OK);
  for (size_t i = 0; i < LEN(pairs); i++) {
    const brim_weights_way to = brim_weights_map_to_model(&map, &arena, pairs[i].file);
    const brim_weights_way back = brim_weights_map_to_file(&map, &arena, pairs[i].model);
    assert_string_equal(to.name, pairs[i].model);
    assert_string_equal(back.name, pairs[i].file);
    assert_int_equal(to.transpose, pairs[i].transpose);
    assert_int_equal(back.transpose, pairs[i].transpose);
  }
  assert_null(brim_weights_map_to_model(&map, &arena, "bn.count").name);
  assert_null(brim_weights_map_to_model(&map, &arena, "bn.count").same_as);
  assert_string_equal(brim_weights_map_to_model(&map, &arena, "last").same_as, "t.first");
  brim_arena_release(&arena);
}

/* ---- parameters ---- */

#define PARAMETERS_MAX 32
typedef struct model {
  brim_tensor tensor[PARAMETERS_MAX];
  const brim_tensor *parameter[PARAMETERS_MAX];
  size_t count;
} model;

static void add(model *m, const char *name, uint32_t dtype, brim_shape shape)
{
  brim_tensor *t = &m->tensor[m->count];
  *t = (brim_tensor){.name = name, .dtype = dtype, .shape = shape};
  t->bytes = (uint64_t)brim_shape_count(&shape) * brim_dtype_bytes(dtype);
  m->parameter[m->count++] = t;
}

static const char *const configs[] = {BRIM_TESTS_DIR "/../configs"};
static const brim_weights_search search = {configs, 1};

static brim_status open_for(const model *m, const char *path, const char *map, const char *except, brim_weights **out)
{
  const brim_weights_request request = {.path = path, .map = map, .except = except, .search = search};
  return brim_weights_open(&request, m->parameter, m->count, out);
}

/* A file of tensors; element i has the value `start` + i. */
typedef struct made {
  const char *name;
  uint32_t dtype;
  brim_shape shape;
  double start;
} made;

static void write_made(const char *path, const made *list, size_t count, const char *const *metadata)
{
  brim_safetensor t[PARAMETERS_MAX] = {0};
  for (size_t i = 0; i < count; i++) {
    const size_t elements = (size_t)brim_shape_count(&list[i].shape);
    void *data = calloc(elements + 1, 8);
    for (size_t k = 0; k < elements; k++) {
      const double value = list[i].start + (double)k;
      if (brim_dtype_is_real(list[i].dtype))
        brim_convert(list[i].dtype, (char *)data + k * brim_dtype_bytes(list[i].dtype), BRIM_DTYPE_F64, &value, 1);
    }
    t[i] = (brim_safetensor){.name = list[i].name, .dtype = list[i].dtype, .shape = list[i].shape, .data = data};
  }
  assert_int_equal(brim_safetensors_write(path, t, count, metadata, NULL), BRIM_OK);
  for (size_t i = 0; i < count; i++) free((void *)t[i].data);
}

/* Makes a GPT-2 of one block with width 2, as brim's model and as Hugging Face's file. */
static void make_gpt2(model *m, uint32_t dtype)
{
  m->count = 0;
  add(m, "transformer.wte.weight", dtype, DIMS(5, 2));
  add(m, "transformer.wpe.weight", dtype, DIMS(3, 2));
  add(m, "transformer.h.0.attn.c_attn.weight", dtype, DIMS(6, 2));
  add(m, "transformer.h.0.attn.c_attn.bias", dtype, DIMS(6));
  add(m, "transformer.ln_f.weight", dtype, DIMS(2));
}

static void write_gpt2(const char *path, const char *prefix, uint32_t dtype, double lm_head)
{
  static char name[8][64];
  static const char *const names[] = {"wte.weight",  "wpe.weight",    "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias",
                                      "ln_f.weight", "h.0.attn.bias", "h.0.attn.masked_bias",   "lm_head.weight"};
  const brim_shape shapes[] = {DIMS(5, 2), DIMS(3, 2),       DIMS(2, 6),        DIMS(6),
                               DIMS(2),    DIMS(1, 1, 3, 3), shape_of(0, NULL), DIMS(5, 2)};
  made list[8];
  for (size_t i = 0; i < 8; i++) {
    snprintf(name[i], sizeof name[i], "%s%s", i == 7 ? "" : prefix, names[i]);
    list[i] = (made){name[i], i == 5 ? BRIM_DTYPE_U8 : dtype, shapes[i], i == 7 ? lm_head : 10 * (double)i};
  }
  write_made(path, list, isnan(lm_head) ? 7 : 8, NULL);
}

static void gpt2_of_hugging_face_is_recognised_and_transposed(void **state)
{
  static const uint32_t types[] = {BRIM_DTYPE_F32, BRIM_DTYPE_F64, BRIM_DTYPE_BF16, BRIM_DTYPE_F16};
  static const char *const prefixes[] = {"", "transformer."};
  static const float weight[] = {20, 26, 21, 27, 22, 28, 23, 29, 24, 30, 25, 31};
  for (size_t i = 0; i < LEN(types) * 2; i++) {
    model m;
    make_gpt2(&m, F32);
    float out[12];
    brim_weights *w;
    brim_text text = {0};
    write_gpt2(scratch("gpt2.safetensors"), prefixes[i % 2], types[i / 2], i % 3 ? NAN : 0);
    assert_int_equal(open_for(&m, scratch("gpt2.safetensors"), "auto", "", &w), BRIM_OK);
    brim_weights_print(w, &text);
    assert_non_null(strstr(brim_text_str(&text), "5 tensors"));
    assert_non_null(strstr(brim_text_str(&text), "using map hf_gpt2, recognised"));
    assert_int_equal(brim_weights_read(w, 2, out), BRIM_OK);
    assert_memory_equal(out, weight, sizeof weight);
    assert_int_equal(brim_weights_read(w, 0, out), BRIM_OK);
    for (int k = 0; k < 10; k++) assert_true(out[k] == (float)k);
    brim_text_release(&text);
    brim_weights_close(w);
  }
}

static void a_tied_tensor_that_differs_is_refused(void **state)
{
  model m;
  make_gpt2(&m, BRIM_DTYPE_F64);
  double out[12];
  brim_weights *w;
  write_gpt2(scratch("untied.safetensors"), "", F32, 1);
  assert_int_equal(open_for(&m, scratch("untied.safetensors"), "auto", "", &w), BRIM_OK);
  assert_int_equal(brim_weights_read(w, 0, out), BRIM_ELOAD);
  assert_error("'lm_head.weight' and 'wte.weight' have different values");
  brim_weights_close(w);
}

/* The model needs twelve blocks, but the file has six. The head has another number of classes, and a mask has
 * integers. */
static void all_mismatches_are_reported_together(void **state)
{
  char name[12][2][32];
  model m = {.count = 0};
  made list[PARAMETERS_MAX] = {{"head.weight", F32, DIMS(7, 4), 0},
                               {"mask", BRIM_DTYPE_U8, DIMS(4), 0},
                               {"bias", BRIM_DTYPE_I32, DIMS(4), 0},
                               {"extra.0.x", F32, DIMS(1), 0},
                               {"extra.2.x", F32, DIMS(1), 0}};
  size_t count = 5;
  add(&m, "head.weight", F32, DIMS(10, 4));
  add(&m, "bias", F32, DIMS(4));
  for (int i = 0; i < 12; i++) {
    snprintf(name[i][0], sizeof name[i][0], "blocks.%d.norm.weight", i);
    add(&m, name[i][0], F32, DIMS(4));
    if (i < 6) list[count++] = (made){name[i][0], F32, DIMS(4), 0};
  }
  brim_weights *w;
  write_made(scratch("misfit.safetensors"), list, count, NULL);
  assert_int_equal(open_for(&m, scratch("misfit.safetensors"), "none", "", &w), BRIM_ELOAD);
  assert_error("6 missing: in the model");
  assert_error("blocks.{6..11}.norm.weight: [4] (6 tensors)");
  assert_error("3 unexpected: in the files");
  assert_error("mask: U8 [4]");
  assert_error("extra.{0,2}.x: F32 [1] (2 tensors)");
  assert_error("2 with another shape or type");
  assert_error("head.weight: [7, 4]; the model needs [10, 4]");
  assert_error("bias: I32 [4]; the model needs real numbers [4]");
}

static void a_new_head_is_suggested_and_kept(void **state)
{
  const made list[] = {
      {"body.weight", F32, DIMS(4), 3}, {"head.weight", F32, DIMS(7, 4), 0}, {"head.bias", F32, DIMS(7), 0}};
  model m = {.count = 0};
  brim_weights *w;
  add(&m, "body.weight", F32, DIMS(4));
  add(&m, "head.weight", F32, DIMS(10, 4));
  add(&m, "head.bias", F32, DIMS(10));
  write_made(scratch("head.safetensors"), list, 3, NULL);
  assert_int_equal(open_for(&m, scratch("head.safetensors"), "auto", "", &w), BRIM_ELOAD);
  assert_error("to start with a new 'head', set model.weights_except='head.*'");
  assert_int_equal(open_for(&m, scratch("head.safetensors"), "auto", "had.*", &w), BRIM_ECONFIG);
  assert_error("'had.*' matches no parameter");
  assert_int_equal(open_for(&m, scratch("head.safetensors"), "auto", "head.*", &w), BRIM_OK);
  assert_int_equal(brim_weights_count(w), 1);
  assert_null(brim_weights_source(w, 1));
  brim_text text = {0};
  brim_weights_print(w, &text);
  assert_non_null(strstr(brim_text_str(&text), "; head.weight and head.bias keep their initial values"));
  brim_text_release(&text);
  brim_weights_close(w);
  write_made(scratch("head.safetensors"), list, 1, NULL); /* the file has no such tensor */
  assert_int_equal(open_for(&m, scratch("head.safetensors"), "auto", "", &w), BRIM_ELOAD);
  assert_error("model.weights_except='head.*'");
  assert_int_equal(open_for(&m, scratch("head.safetensors"), "auto", "head.*", &w), BRIM_OK);
  brim_weights_close(w);
}

static void files_may_hold_more_than_a_part_of_a_model(void **state)
{
  const made list[] = {{"body.weight", F32, DIMS(4), 3}, {"head.weight", F32, DIMS(7, 4), 0}};
  model m = {.count = 0};
  brim_weights *w;
  add(&m, "body.weight", BRIM_DTYPE_BF16, DIMS(4));
  write_made(scratch("part.safetensors"), list, 2, NULL);
  const brim_weights_request request = {scratch("part.safetensors"), "none", "", search, true};
  assert_int_equal(brim_weights_open(&request, m.parameter, m.count, &w), BRIM_OK);
  uint16_t out[4];
  assert_int_equal(brim_weights_read(w, 0, out), BRIM_OK);
  assert_int_equal(out[0], 0x4040); /* 3 */
  brim_weights_close(w);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
  const made list[] = {{"a", F32, DIMS(2), INFINITY}};
  model m = {.count = 0};
  brim_weights *w;
  float out[2];
  add(&m, "a", F32, DIMS(2));
  write_made(scratch("infinite.safetensors"), list, 1, NULL);
  assert_int_equal(open_for(&m, scratch("infinite.safetensors"), "none", "", &w), BRIM_OK);
  assert_int_equal(brim_weights_read(w, 0, out), BRIM_ELOAD);
  assert_error("'a' has a value that is not a finite number");
  brim_weights_close(w);
}

static void two_tensors_that_would_be_one_parameter_are_refused(void **state)
{
  model m;
  make_gpt2(&m, F32);
  const made list[] = {{"wte.weight", F32, DIMS(5, 2), 0}, {"transformer.wte.weight", F32, DIMS(5, 2), 0}};
  brim_weights *w;
  write_made(scratch("both.safetensors"), list, 2, NULL);
  assert_int_equal(open_for(&m, scratch("both.safetensors"), "hf_gpt2", "", &w), BRIM_ELOAD);
  assert_error("match the model's 'transformer.wte.weight'");
}

/* ---- export ---- */

static void exports_are_read_back_as_they_were(void **state)
{
  static const uint32_t types[] = {0, BRIM_DTYPE_BF16};
  model m;
  make_gpt2(&m, F32);
  brim_arena arena = {0};
  brim_safetensor t[PARAMETERS_MAX] = {0};
  float values[12], out[12];
  for (int i = 0; i < 12; i++) values[i] = (float)i - 4;
  for (size_t i = 0; i < m.count; i++)
    t[i] =
        (brim_safetensor){.name = m.parameter[i]->name, .dtype = F32, .shape = m.parameter[i]->shape, .data = values};
  const brim_parameters p = {t, m.count, NULL};
  for (size_t k = 0; k < LEN(types); k++) {
    const brim_weights_map *map;
    brim_safetensors *file;
    brim_weights *w;
    assert_int_equal(brim_export_choose(&arena, &search, "hf", &p, &map), BRIM_OK);
    assert_string_equal(map->name, "hf_gpt2");
    assert_int_equal(brim_export_write(&p, map, types[k], NULL, scratch("out.safetensors")), BRIM_OK);
    assert_int_equal(brim_safetensors_open(scratch("out.safetensors"), &file), BRIM_OK);
    assert_string_equal(brim_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(brim_safetensors_metadata(file, "layout"), "hf_gpt2");
    const brim_safetensor *c = brim_safetensors_find(file, "transformer.h.0.attn.c_attn.weight");
    assert_int_equal(c->shape.dim[0], 2);
    assert_int_equal(c->shape.dim[1], 6);
    brim_safetensors_close(file);
    assert_int_equal(open_for(&m, scratch("out.safetensors"), "auto", "", &w), BRIM_OK);
    for (size_t i = 0; i < m.count; i++) {
      assert_int_equal(brim_weights_read(w, i, out), BRIM_OK);
      assert_memory_equal(out, values, m.parameter[i]->bytes);
    }
    brim_weights_close(w);
  }
  brim_arena_release(&arena);
}

static void formats_that_do_not_fit_a_model_are_refused(void **state)
{
  static const float value[1];
  const brim_safetensor t = {.name = "fc.weight", .dtype = F32, .shape = DIMS(1), .data = value};
  const brim_parameters p = {&t, 1, NULL};
  const brim_weights_map *map;
  brim_arena arena = {0};
  assert_int_equal(brim_export_choose(&arena, &search, "timm", &p, &map), BRIM_ECONFIG);
  assert_error("do not match any network that has the format 'timm'\nfor this model: brim");
  assert_int_equal(brim_export_choose(&arena, &search, "tim", &p, &map), BRIM_ECONFIG);
  assert_error("available: brim hf timm torchvision");
  scratch_put("lossy.yaml", "rules: [{from: '*', to: 'fc.*'}, {from: 'a.*', to: 'fc.*'}, {from: weight, drop: true}]");
  assert_int_equal(brim_export_choose(&arena, &search, scratch("lossy.yaml"), &p, &map), BRIM_OK);
  scratch_put("lossy.yaml", "rules: [{from: weight, drop: true}, {from: '*', to: 'fc.*'}]");
  assert_int_equal(brim_export_choose(&arena, &search, scratch("lossy.yaml"), &p, &map), BRIM_ECONFIG);
  assert_error("renames the model's 'fc.weight' to 'weight', but does not rename that back to 'fc.weight'");
  brim_arena_release(&arena);
}

static void values_beyond_fp16_are_not_exported(void **state)
{
  static const float value[] = {1e6f};
  const brim_safetensor t = {.name = "a", .dtype = F32, .shape = DIMS(1), .data = value};
  const brim_parameters p = {&t, 1, NULL};
  assert_int_equal(brim_export_write(&p, NULL, BRIM_DTYPE_F16, NULL, scratch("large.safetensors")), BRIM_EINVAL);
  assert_error("'a' has a value that is not a finite number in F16");
  assert_false(scratch_exists(scratch("large.safetensors")));
  assert_false(scratch_exists(scratch(".large.safetensors.tmp")));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conversions_are_those_of_pytorch),
      cmocka_unit_test(every_number_of_16_bits_comes_back),
      cmocka_unit_test(values_too_large_for_16_bits_become_infinite),
      cmocka_unit_test(wrong_indexes_are_refused_with_the_reason),
      cmocka_unit_test(shards_are_read_by_their_index),
      cmocka_unit_test(shards_that_are_not_those_of_the_index_are_refused),
      cmocka_unit_test(files_without_weights_are_refused_with_advice),
      cmocka_unit_test(wrong_maps_are_refused_with_every_mistake),
      cmocka_unit_test(names_map_to_the_model_and_back),
      cmocka_unit_test(gpt2_of_hugging_face_is_recognised_and_transposed),
      cmocka_unit_test(a_tied_tensor_that_differs_is_refused),
      cmocka_unit_test(all_mismatches_are_reported_together),
      cmocka_unit_test(a_new_head_is_suggested_and_kept),
      cmocka_unit_test(files_may_hold_more_than_a_part_of_a_model),
      cmocka_unit_test(numbers_that_are_not_finite_are_refused),
      cmocka_unit_test(two_tensors_that_would_be_one_parameter_are_refused),
      cmocka_unit_test(exports_are_read_back_as_they_were),
      cmocka_unit_test(formats_that_do_not_fit_a_model_are_refused),
      cmocka_unit_test(values_beyond_fp16_are_not_exported),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
