/* Compares small forms of the models with pretrained weights with PyTorch in double precision: logits, losses and
 * gradients of one batch, moving averages, and 20 steps of AdamW and of SGD with momentum.
 * tests/golden/make_backbones.py makes and describes the fixtures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "conformance/golden_model.h"

#define CLASSES 5

static void check(const char *fixture, const char *model, const char *settings)
{
  golden_model_check(fixture, model, settings, CLASSES);
}

static void test_resnet18_for_small_images_matches_pytorch(void **state)
{
  check("resnet18_cifar.txt", "resnet18", "{width: 2}");
}

static void test_resnet18_for_large_images_matches_pytorch(void **state)
{
  check("resnet18_imagenet.txt", "resnet18", "{width: 1, stem: imagenet}");
}

static void test_resnet50_matches_pytorch(void **state)
{
  check("resnet50.txt", "resnet50", "{width: 1, stem: cifar}");
}

static void test_clips_visual_tower_matches_pytorch(void **state)
{
  check("clip_vit.txt", "clip_vit", "{patch: 2, depth: 2, width: 8, heads: 2, mlp_ratio: 2, projection: 7}");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resnet18_for_small_images_matches_pytorch),
      cmocka_unit_test(test_resnet18_for_large_images_matches_pytorch),
      cmocka_unit_test(test_resnet50_matches_pytorch),
      cmocka_unit_test(test_clips_visual_tower_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
