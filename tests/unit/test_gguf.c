/* Tests GGUF files: values have the bits of the Python package gguf, written files read back, and invalid files are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/gguf.h"
#include "config/family.h"
#include "config/gguf_config.h"
#include "param/json.h"
#include "scratch.h"

#define GOLDEN BRIM_TESTS_DIR "/golden/types.gguf"

static brim_gguf *open_golden(void)
{
  brim_gguf *file = NULL;
  assert_int_equal(brim_gguf_open(GOLDEN, &file), BRIM_OK);
  return file;
}

static const brim_gguf_tensor *companion(const brim_gguf *file, const char *name, const char *suffix)
{
  char full[64];
  snprintf(full, sizeof full, "%s.%s", name, suffix);
  return brim_gguf_tensor_find(file, full);
}

static void all_types_have_the_bits_of_the_package(void **state)
{
  static const char *const names[] = {"F32",  "F16",  "BF16", "Q8_0", "Q4_0", "Q4_1",
                                      "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
  brim_gguf *file = open_golden();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const brim_gguf_tensor *t = brim_gguf_tensor_find(file, names[i]), *want = companion(file, names[i], "values");
    float values[512];
    assert_non_null(t);
    assert_string_equal(t->type->name, names[i]);
    const size_t count = (size_t)brim_shape_count(&t->shape);
    assert_true(count <= 512 && count == (size_t)brim_shape_count(&want->shape));
    t->type->unpack(t->data, count / t->type->count, values);
    assert_memory_equal(values, want->data, count * sizeof values[0]);
  }
  brim_gguf_close(file);
}

static void written_types_have_the_bits_of_the_package(void **state)
{
  static const char *const names[] = {"F16", "BF16", "Q8_0"};
  brim_gguf *file = open_golden();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const brim_gguf_tensor *t = brim_gguf_tensor_find(file, names[i]), *from = companion(file, names[i], "source");
    unsigned char packed[512];
    float source[96];
    memcpy(source, from->data, sizeof source);
    t->type->pack(source, 96 / t->type->count, packed);
    assert_memory_equal(packed, t->data, t->bytes);
  }
  brim_gguf_close(file);
}

static void metadata_have_their_values(void **state)
{
  static const struct {
    const char *key;
    int64_t value;
  } integers[] = {{"test.u8", 200},        {"test.i8", -100},          {"test.u16", 60000},
                  {"test.i16", -30000},    {"test.u32", 4000000000},   {"test.i32", -2000000000},
                  {"test.u64", 1ll << 40}, {"test.i64", -(1ll << 40)}, {"test.bool", 1}};
  brim_gguf *file = open_golden();
  int64_t integer;
  double number;
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
    assert_true(brim_gguf_integer(brim_gguf_find(file, integers[i].key), 0, &integer));
    assert_int_equal(integer, integers[i].value);
  }
  assert_true(brim_gguf_number(brim_gguf_find(file, "test.f32"), 0, &number) && number == (double)0.1f);
  assert_true(brim_gguf_number(brim_gguf_find(file, "test.f64"), 0, &number) && number == 0.1);
  assert_false(brim_gguf_integer(brim_gguf_find(file, "test.f64"), 0, &integer));
  assert_string_equal(brim_gguf_text(file, "test.text"), "ä\n");
  assert_string_equal(brim_gguf_text(file, "test.texts"), "");
  assert_null(brim_gguf_find(file, "test.absent"));
  const brim_gguf_value *numbers = brim_gguf_find(file, "test.numbers"), *texts = brim_gguf_find(file, "test.texts");
  assert_true(numbers->is_array && brim_gguf_integer(numbers, 1, &integer) && integer == -1);
  assert_false(brim_gguf_integer(numbers, 3, &integer));
  uint64_t at = 0, bytes, count = 0;
  const char *text;
  while (brim_gguf_next_text(texts, &at, &text, &bytes)) count++;
  assert_int_equal(count, 3);
  assert_true(bytes == 2 && memcmp(text, "bc", 2) == 0);
  brim_gguf_close(file);
}

/* brim refuses every truncated file with a reason. */
static void a_truncated_file_is_refused(void **state)
{
  size_t size;
  char *bytes = scratch_read(GOLDEN, &size);
  for (size_t less = 0; less < size - 31; less += less < 1200 ? 1 : 97) {
    brim_gguf *file = NULL;
    char *copy = malloc(less + 1); /* so that a sanitizer sees a read after its end */
    memcpy(copy, bytes, less);
    assert_int_equal(brim_gguf_parse(copy, less, "short.gguf", &file), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), "'short.gguf' is not a GGUF file that brim can read: "));
    free(copy);
  }
  free(bytes);
}

/* ---- files built here ---- */

typedef struct bytes {
  char data[1024];
  size_t count;
} bytes;

static void add(bytes *b, const void *data, size_t count)
{
  memcpy(b->data + b->count, data, count);
  b->count += count;
}

static void add_number(bytes *b, uint64_t value, size_t count)
{
  add(b, &value, count);
}

static void add_text(bytes *b, const char *text)
{
  add_number(b, strlen(text), 8);
  add(b, text, strlen(text));
}

/* Builds a file with an architecture and a tensor [2, 32]. */
static bytes build(uint32_t version, uint64_t tensors, uint32_t type, uint64_t row, uint64_t offset)
{
  bytes b = {.count = 0};
  add(&b, "GGUF", 4);
  add_number(&b, version, 4);
  add_number(&b, tensors, 8);
  add_number(&b, 1, 8);
  add_text(&b, "general.architecture");
  add_number(&b, BRIM_GGUF_TEXT, 4);
  add_text(&b, "llama");
  for (int i = 0; i < 2; i++) {
    add_text(&b, "w");
    add_number(&b, 2, 4);
    add_number(&b, row, 8);
    add_number(&b, 2, 8);
    add_number(&b, type, 4);
    add_number(&b, offset, 8);
    if (tensors == 1) break;
  }
  b.count = (b.count + 31) / 32 * 32;
  b.count += 256;
  return b;
}

static void refuse(const bytes *b, const char *message)
{
  brim_gguf *file = NULL;
  assert_int_equal(brim_gguf_parse(b->data, b->count, "x.gguf", &file), BRIM_ELOAD);
  if (!strstr(brim_error_text(), message)) fail_msg("'%s' is not in: %s", message, brim_error_text());
}

static void invalid_files_are_refused_with_the_reason(void **state)
{
  brim_gguf *file = NULL;
  bytes b = build(3, 1, 0, 32, 0);
  assert_int_equal(brim_gguf_parse(b.data, b.count, "x.gguf", &file), BRIM_OK);
  assert_int_equal(brim_gguf_tensor_find(file, "w")->shape.dim[1], 32);
  brim_gguf_close(file);
  b = build(2, 1, 2, 32, 64);
  assert_int_equal(brim_gguf_parse(b.data, b.count, "x.gguf", &file), BRIM_OK);
  brim_gguf_close(file);
  b = build(1, 1, 0, 32, 0);
  refuse(&b, "it has version 1; brim reads 2 and 3");
  b = build(0x03000000, 1, 0, 32, 0);
  refuse(&b, "big-endian");
  b = build(3, 1, 10, 32, 0);
  refuse(&b, "tensor 'w' has type Q2_K; brim reads F32");
  b = build(3, 1, 16, 32, 0);
  refuse(&b, "type IQ2_XXS");
  b = build(3, 1, 99, 32, 0);
  refuse(&b, "tensor 'w' has type 99, which the format does not define");
  b = build(3, 1, 8, 33, 0);
  refuse(&b, "rows of 33 values, but blocks of Q8_0 have 32");
  b = build(3, 1, 0, 32, 8);
  refuse(&b, "begin at 8, which is not a multiple of 32");
  b = build(3, 1, 0, 32, 32);
  refuse(&b, "tensor 'w' needs 256 bytes at byte");
  b = build(3, 1, 0, UINT64_MAX, 0);
  refuse(&b, "overflows");
  b = build(3, 2, 2, 32, 0);
  refuse(&b, "overlap");
  b = build(3, UINT64_MAX, 0, 32, 0);
  refuse(&b, "tensors, more than fit into it");
  b.data[0] = 'g';
  refuse(&b, "does not begin with GGUF");
}

/* ---- writing ---- */

static brim_status values_of(void *context, size_t i, const void **out)
{
  *out = ((const void *const *)context)[i];
  return BRIM_OK;
}

static void a_written_file_reads_back(void **state)
{
  const float norm[] = {1, 2, 3};
  unsigned char packed[68];
  float source[64];
  for (int i = 0; i < 64; i++) source[i] = (float)i - 20;
  const brim_gguf_type *q8 = brim_gguf_type_named("Q8_0");
  q8->pack(source, 2, packed);
  const brim_gguf_tensor tensor[] = {{.name = "n", .type = brim_gguf_type_named("F32"), .shape = {1, {3}}},
                                     {.name = "w", .type = q8, .shape = {2, {2, 32}}}};
  const void *const values[] = {norm, packed};
  const brim_gguf_source source_of = {values_of, (void *)(uintptr_t)values};
  brim_gguf_head head = {0};
  brim_gguf_put_text(&head, "general.architecture", "llama", 5);
  brim_gguf_put_u32(&head, "llama.block_count", 7);
  brim_gguf_put_f32(&head, "x", 0.5f);
  brim_gguf_put_bool(&head, "y", true);
  brim_gguf_put_array(&head, "z", BRIM_GGUF_TEXT, 2);
  brim_gguf_add_text(&head, "a", 1);
  brim_gguf_add_text(&head, "", 0);
  assert_int_equal(brim_gguf_write(scratch("a.gguf"), &head, tensor, 2, &source_of), BRIM_OK);
  brim_gguf_head_release(&head);
  brim_gguf *file = NULL;
  int64_t layers;
  assert_int_equal(brim_gguf_open(scratch("a.gguf"), &file), BRIM_OK);
  assert_true(brim_gguf_integer(brim_gguf_find_own(file, "block_count"), 0, &layers) && layers == 7);
  assert_int_equal(brim_gguf_find(file, "z")->count, 2);
  assert_memory_equal(brim_gguf_tensor_find(file, "n")->data, norm, sizeof norm);
  assert_memory_equal(brim_gguf_tensor_find(file, "w")->data, packed, sizeof packed);
  assert_int_equal(brim_gguf_tensor_find(file, "w")->shape.dim[0], 2);
  brim_gguf_close(file);
}

/* ---- config.json ---- */

/* Writes the metadata of a config.json with the required keys, 32 heads and a width of 2048, and reads the file. */
static brim_gguf *write_config(const char *type, const char *more)
{
  static const char *const folder[] = {BRIM_TESTS_DIR "/../configs"};
  brim_arena arena = {0};
  brim_yaml *config = NULL;
  brim_gguf_head head = {0};
  brim_gguf *file = NULL;
  const char *text = brim_arena_printf(
      &arena, "{\"model_type\": \"%s\", \"hidden_size\": 2048, \"num_attention_heads\": 32, \"vocab_size\": 9%s}", type,
      more);
  assert_int_equal(brim_json_parse(&arena, text, strlen(text), "config.json", &config), BRIM_OK);
  assert_int_equal(brim_family_complete(&arena, folder, 1, config), BRIM_OK);
  assert_int_equal(brim_gguf_put_config(config, &head), BRIM_OK);
  assert_int_equal(brim_gguf_write(scratch("c.gguf"), &head, NULL, 0, &(brim_gguf_source){0}), BRIM_OK);
  assert_int_equal(brim_gguf_open(scratch("c.gguf"), &file), BRIM_OK);
  brim_gguf_head_release(&head);
  brim_arena_release(&arena);
  return file;
}

static double own_number(const brim_gguf *file, const char *key)
{
  double number = 0;
  const brim_gguf_value *v = brim_gguf_find_own(file, key);
  return v && brim_gguf_number(v, 0, &number) ? number : 0;
}

/* 0: the key is missing. */
static void a_config_without_optional_keys_has_the_values_of_transformers(void **state)
{
  static const struct {
    const char *type;
    int64_t head_size, kv_heads, context;
    double eps, rope_base, window;
  } family[] = {{"llama", 64, 32, 2048, 1e-6, 0, 0},     {"mistral", 64, 8, 131072, 1e-6, 0, 0},
                {"qwen2", 64, 32, 32768, 1e-6, 0, 0},    {"qwen3", 128, 32, 32768, 1e-6, 0, 0},
                {"smollm3", 64, 4, 32768, 1e-6, 2e6, 0}, {"gemma", 256, 16, 8192, 1e-6, 0, 0},
                {"gemma2", 256, 4, 8192, 1e-6, 0, 4096}, {"gemma3_text", 256, 4, 131072, 1e-6, 1e6, 4096},
                {"phi3", 64, 32, 4096, 1e-5, 0, 0},      {"olmo2", 64, 32, 2048, 1e-5, 0, 0},
                {"granite", 64, 32, 2048, 1e-6, 0, 0}};
  for (size_t i = 0; i < sizeof family / sizeof family[0]; i++) {
    brim_gguf *file = write_config(family[i].type, "");
    assert_true(own_number(file, "attention.key_length") == (double)family[i].head_size);
    assert_true(own_number(file, "attention.value_length") == (double)family[i].head_size);
    assert_true(own_number(file, "attention.head_count_kv") == (double)family[i].kv_heads);
    assert_true(own_number(file, "context_length") == (double)family[i].context);
    assert_true(own_number(file, "attention.layer_norm_rms_epsilon") == (double)(float)family[i].eps);
    assert_true(own_number(file, "rope.freq_base") == family[i].rope_base);
    assert_true(own_number(file, "attention.sliding_window") == family[i].window);
    brim_gguf_close(file);
  }
  brim_gguf *file = write_config("gemma2", "");
  assert_true(own_number(file, "attn_logit_softcapping") == 50 && own_number(file, "final_logit_softcapping") == 30);
  brim_gguf_close(file);
  file = write_config("granite", "");
  assert_true(own_number(file, "attention.scale") == 1 && own_number(file, "logit_scale") == 1);
  assert_true(own_number(file, "embedding_scale") == 1 && own_number(file, "residual_scale") == 1);
  brim_gguf_close(file);
}

static void keys_of_a_config_are_not_replaced(void **state)
{
  brim_gguf *file = write_config("qwen3", ", \"head_dim\": 16, \"num_key_value_heads\": null");
  assert_true(own_number(file, "attention.key_length") == 16 && own_number(file, "attention.head_count_kv") == 32);
  brim_gguf_close(file);
  file = write_config("smollm3", ", \"rope_parameters\": {\"rope_theta\": 5000}");
  assert_true(own_number(file, "rope.freq_base") == 5000);
  brim_gguf_close(file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_types_have_the_bits_of_the_package),
      cmocka_unit_test(written_types_have_the_bits_of_the_package),
      cmocka_unit_test(metadata_have_their_values),
      cmocka_unit_test(a_truncated_file_is_refused),
      cmocka_unit_test(invalid_files_are_refused_with_the_reason),
      cmocka_unit_test(a_written_file_reads_back),
      cmocka_unit_test(a_config_without_optional_keys_has_the_values_of_transformers),
      cmocka_unit_test(keys_of_a_config_are_not_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
