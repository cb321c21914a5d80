/* Fuzzes the reader of other programs' JSON: every input is refused with a position, or becomes a tree whose every node
 * has one; brim reads every text that jansson reads, with the same values. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "param/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_json: %s: %s\n", what, brim_error_text());
  abort();
}

static void check_tree(const brim_yaml *node, int depth)
{
  check(depth <= BRIM_YAML_DEPTH_MAX, "too deep");
  check(node->origin.line >= 1 && node->origin.column >= 1 && node->origin.file != NULL, "no position");
  for (size_t i = 0; i < node->count; i++) {
    if (node->kind == BRIM_YAML_MAP) check(brim_yaml_get(node, node->key[i]) == node->item[i], "a key occurs twice");
    if (node->kind == BRIM_YAML_MAP) check(node->item[i]->key_line >= 1, "no position of a key");
    check_tree(node->item[i], depth + 1);
  }
}

/* Compares numbers as the text of a double. */
static void check_equal(const brim_yaml *a, json_t *b)
{
  static const char *const words[] = {[JSON_TRUE] = "true", [JSON_FALSE] = "false", [JSON_NULL] = "null"};
  json_t *item = NULL;
  if (json_is_object(b)) {
    check(a->kind == BRIM_YAML_MAP && a->count == json_object_size(b), "another map");
    for (size_t i = 0; i < a->count; i++) {
      check((item = json_object_get(b, a->key[i])) != NULL, "another key");
      check_equal(a->item[i], item);
    }
  } else if (json_is_array(b)) {
    check(a->kind == BRIM_YAML_LIST && a->count == json_array_size(b), "another list");
    for (size_t i = 0; i < a->count; i++) check_equal(a->item[i], json_array_get(b, i));
  } else if (json_is_string(b)) {
    check(a->quoted && strcmp(a->scalar, json_string_value(b)) == 0, "another text");
  } else if (json_is_number(b)) {
    const double difference = strtod(a->scalar, NULL) - json_number_value(b);
    check(!a->quoted && !(difference < 0 || difference > 0), "another number");
  } else {
    check(!a->quoted && strcmp(a->scalar, words[json_typeof(b)]) == 0, "another word");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  brim_arena arena = {0};
  brim_yaml *node = NULL;
  json_error_t problem;
  json_t *other = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
  if (brim_json_parse(&arena, (const char *)data, size, "input", &node) != BRIM_OK) {
    check(strstr(brim_error_text(), "\n  input:") != NULL, "refused without a position");
    check(!other || strstr(brim_error_text(), "nested deeper") != NULL, "refused, but jansson reads it");
  } else {
    check_tree(node, 0);
    if (other) check_equal(node, other);
  }
  json_decref(other);
  brim_arena_release(&arena);
  return 0;
}
