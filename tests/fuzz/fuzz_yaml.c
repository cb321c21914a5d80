/* Fuzzes the YAML reader: every input is refused with an error, or becomes a tree within the limits whose every node
 * has a position, and which is equal after printing and reading it again. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "param/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_yaml: %s: %s\n", what, brim_error_text());
  abort();
}

static void check_tree(const brim_yaml *node, int depth, size_t *nodes)
{
  check(depth + (node->kind != BRIM_YAML_SCALAR) <= BRIM_YAML_DEPTH_MAX, "too deep");
  check(node->origin.line >= 1 && node->origin.column >= 1 && node->origin.file != NULL, "no position");
  check(node->scalar != NULL, "no scalar");
  *nodes += 1;
  for (size_t i = 0; i < node->count; i++) {
    if (node->kind == BRIM_YAML_MAP) {
      *nodes += 1;
      check(node->key[i][0] != '\0' && strlen(node->key[i]) <= BRIM_YAML_KEY_BYTES_MAX, "a bad key");
      check(brim_yaml_get(node, node->key[i]) == node->item[i], "a key that finds another child");
    }
    check_tree(node->item[i], depth + 1, nodes);
  }
}

/* Printing quotes plain text that is not safe everywhere; everything else stays. */
static void check_equal(const brim_yaml *a, const brim_yaml *b)
{
  check(a->kind == b->kind && a->count == b->count, "printed and read again, the shape differs");
  if (a->kind == BRIM_YAML_SCALAR && brim_yaml_is_null(a)) {
    check(brim_yaml_is_null(b), "null is no longer null");
  } else {
    check(strcmp(a->scalar, b->scalar) == 0, "printed and read again, a scalar differs");
    check(!a->quoted || b->quoted || a->kind != BRIM_YAML_SCALAR, "printed and read again, quotes are lost");
  }
  for (size_t i = 0; i < a->count; i++) {
    if (a->kind == BRIM_YAML_MAP) check(strcmp(a->key[i], b->key[i]) == 0, "printed and read again, a key differs");
    check_equal(a->item[i], b->item[i]);
  }
}

static void check_printing(brim_arena *arena, const brim_yaml *node, bool origins)
{
  brim_text once = {0}, twice = {0};
  brim_yaml_print(node, &once, origins);
  if (once.length <= BRIM_YAML_BYTES_MAX) { /* expanding aliases may have made it longer */
    brim_yaml *again = NULL;
    check(brim_yaml_parse(arena, once.s, once.length, "again", &again) == BRIM_OK, "the printed text is refused");
    check_equal(node, again);
    brim_yaml_print(again, &twice, false);
    check(origins || strcmp(once.s, twice.s) == 0, "printed twice, it differs");
  }
  brim_text_release(&once);
  brim_text_release(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  brim_arena arena = {0};
  brim_yaml *node = NULL;
  if (brim_yaml_parse(&arena, (const char *)data, size, "input", &node) != BRIM_OK) {
    check(strstr(brim_error_text(), "\n  input:") != NULL, "refused without a position");
  } else {
    size_t nodes = 0;
    check_tree(node, 0, &nodes);
    check(nodes <= BRIM_YAML_NODES_MAX, "too many nodes");
    check_printing(&arena, node, false);
    check_printing(&arena, node, true);
  }
  brim_arena_release(&arena);
  return 0;
}
